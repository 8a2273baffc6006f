// A report on a token file for people: what `zpp-data inspect` prints.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "core/data/token_file.h"

namespace zpp {

struct InspectOptions {
  TokenFileOptions file = {};
  int64_t samples = 3;                     // pieces shown, spread evenly
  int64_t sample_tokens = 200;             // of each
  int64_t scan_tokens = int64_t{1} << 40;  // read for the range of ids, documents and entropy
};

/// Facts of the header, range of ids, documents, entropy of single tokens, and samples (as text
/// where the tokenizer is known, else as ids).
/// Errors:  as TokenFile; an id outside the vocabulary anywhere in what is read.
std::string inspect(const std::filesystem::path& path, const InspectOptions& options = {});

}  // namespace zpp
