// Raw text to token files: what `zpp-data tokenize` does.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "core/data/text_reader.h"

namespace zpp {

struct TokenizeOptions {
  std::vector<std::filesystem::path> inputs;  // "-": standard input
  std::filesystem::path output;
  std::filesystem::path val_output = {};  // held-out text; empty: none
  double val_fraction = 0;                // share of documents (or blocks) that is held out
  TextOptions text = {};
  std::function<void(int64_t bytes)> on_progress = {};  // called about once per MiB of text
};

struct TokenizeReport {
  struct Part {
    int64_t tokens = 0, documents = 0;
  };
  int64_t bytes = 0;  // read
  Part train, val;
};

/// Byte tokens in zpp format, an end-of-text after each document. What is held out is spread evenly
/// over the input: every n-th document, or, where the input does not tell documents apart, every
/// n-th block of about 16 KiB that ends with a paragraph (blank line). The two sides of a cut count
/// as documents of their own. Needs memory for one piece of text, whatever the input's size;
/// outputs appear complete or not at all.
/// Errors:  as read_documents and TokenWriter; kInvalidArgument for options that contradict each
///          other, an input without text, or one too small to hold anything out.
TokenizeReport tokenize(const TokenizeOptions& options);

/// "\n", "\t", "\r", "\\" and "\xHH" in `text` replaced by the bytes they stand for.
/// Errors:  kInvalidArgument.
std::string unescape(std::string_view text);

}  // namespace zpp
