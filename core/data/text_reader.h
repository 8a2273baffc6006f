// Documents from files of raw text, piece by piece, so that a file may be larger than memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace zpp {

struct TextOptions {
  std::string format = "auto";    // auto (by the file's ending), text, jsonl
  std::string text_key = "text";  // member of each JSON line that holds the text
  std::string separator = {};     // ends a document of plain text; empty: the whole file is one
};

/// Receives the text of documents in order; `ends` is set with the last piece of each (which may be
/// empty).
using OnText = std::function<void(std::string_view piece, bool ends)>;

/// Whether the file's format and options tell its documents apart.
bool has_documents(const std::filesystem::path& path, const TextOptions& options);

/// Reads one file, or standard input if `path` is "-". Documents without text are left out. Returns
/// the bytes read.
/// Errors:  kNotFound, kIo; kInvalidArgument for compressed input, and for a JSON line that is no
///          object with text under the key, naming file and line.
int64_t read_documents(const std::filesystem::path& path, const TextOptions& options,
                       const OnText& on_text);

}  // namespace zpp
