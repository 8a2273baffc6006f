// Writing token files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/data/token_format.h"
#include "core/files.h"

namespace zpp {

/// Writes one file as a stream; it appears under its name at commit(), complete or not at all.
class TokenWriter {
 public:
  struct Options {
    std::string format = "zpp";        // zpp or llmc
    TokenType type = TokenType::kU16;  // kU16 or kU32
    int64_t vocab = 0;                 // 0: the largest id that was written, and one
    std::optional<int64_t> eot = {};
    std::string tokenizer = {};
  };

  /// Errors: kIo; kInvalidArgument for options that the format cannot hold.
  TokenWriter(const std::filesystem::path& path, const Options& options);

  /// Errors: kIo; kInvalidArgument for an id outside the vocabulary, or more tokens than llmc can
  /// count.
  void write(std::span<const int32_t> ids);
  /// One more document for the header; writes no token.
  void count_document() { ++documents_; }
  int64_t tokens() const { return tokens_; }
  int64_t documents() const { return documents_; }
  const std::filesystem::path& path() const { return file_.path(); }
  void commit();

 private:
  template <class T>
  void append(std::span<const int32_t> ids);
  void flush();

  const Options options_;
  AtomicFile file_;
  std::vector<std::byte> buffer_;
  int64_t bound_, tokens_ = 0, documents_ = 0;
  int32_t largest_ = 0;
};

}  // namespace zpp
