// One file of tokens, mapped: any supported format behind the same three questions (how many, which
// ids, where documents start). Positions are 64 bit; nothing is read before it is asked for.
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

struct TokenFileOptions {
  std::string format = "auto";      // auto, zpp, llmc, megatron, raw_u16, text
  int64_t vocab = 0;                // ids must be below; 0: what the file says, or any 31-bit id
  std::optional<int64_t> eot = {};  // id that ends a document; absent: what the file says
};

class TokenFile {
 public:
  /// Errors:  kNotFound, kIo; kInvalidArgument for an unknown format, a malformed file, or one made
  ///          for a larger vocabulary than `options.vocab`.
  explicit TokenFile(const std::filesystem::path& path, const TokenFileOptions& options = {});

  const std::filesystem::path& path() const { return path_; }
  const TokenFileInfo& info() const { return info_; }
  int64_t size() const { return info_.tokens; }

  /// Tokens [begin, begin + out.size()), which must lie inside the file.
  /// Errors: kInvalidArgument for an id outside the vocabulary, naming the file, the token's
  /// position and the id.
  void read(int64_t begin, std::span<int32_t> out) const;

  /// Whether the file or the options say where documents end.
  bool knows_documents() const;
  /// Positions in [begin, end) where a document starts, ascending; position 0 is one.
  std::vector<int64_t> document_starts(int64_t begin, int64_t end) const;

  void advise(MappedFile::Access access) const { file_.advise(access); }

 private:
  [[noreturn]] void bad_token(int64_t position, int64_t id) const;

  std::filesystem::path path_;
  MappedFile file_;
  TokenFileInfo info_;
  MegatronIndex index_;
  int64_t bound_ = kMaxVocab;  // ids must be below
};

}  // namespace zpp
