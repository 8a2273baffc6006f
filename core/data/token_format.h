// Layouts of token files: what the first bytes of each format must say, and where the tokens lie.
//
// All numbers are little-endian. The format of our own, "zpp", is a header of 128 bytes and the
// tokens, nothing after:
//   0  8  magic "ZPPTOKN1"        32   8  i64 end-of-text id, -1 for none
//   8  4  u32 version, 1          40   8  u64 documents
//  12  4  u32 bytes per token     48  32  tokenizer's name, padded with NUL
//  16  8  u64 tokens              80  48  zero
//  24  8  u64 vocabulary: all ids are below
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/files.h"

namespace zpp {

enum class TokenType : uint8_t { kU8, kI8, kU16, kI16, kI32, kU32, kI64 };

/// Bytes of one token.
int64_t size_of(TokenType type);
const char* to_string(TokenType type);

/// What a file says about its tokens.
struct TokenFileInfo {
  std::string format;  // zpp, llmc, megatron, raw_u16, text
  TokenType type = TokenType::kU16;
  int64_t offset = 0;  // byte of the first token
  int64_t tokens = 0;
  int64_t vocab = 0;                      // 0: not known
  std::optional<int64_t> eot = {};        // id that ends a document
  std::optional<int64_t> documents = {};  // how many, where the file says so
  std::string tokenizer = {};             // empty: not known
};

inline constexpr int64_t kZppHeaderBytes = 128;
inline constexpr int64_t kLlmcHeaderBytes = 1024;
inline constexpr int64_t kMaxVocab = int64_t{1} << 31;

/// A little-endian number at any alignment.
template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

/// The format that the magic numbers of `path` and its neighbours tell.
/// Errors: kNotFound; kInvalidArgument with a hint when no format is recognised.
std::string detect_token_format(const std::filesystem::path& path);

/// Checks the header against the file.
/// Errors:  kInvalidArgument naming the file and the field.
TokenFileInfo read_zpp_header(const MappedFile& file);
TokenFileInfo read_llmc_header(const MappedFile& file);
/// Files without a header: any content of whole tokens, unless it starts like another format.
TokenFileInfo read_raw_u16(const MappedFile& file);
TokenFileInfo read_text(const MappedFile& file);

/// The id that stands between the documents of an llm.c file, which the file itself does not say:
/// GPT-2's for tokens of two bytes, Llama 3's for four.
int64_t llmc_end_of_text(TokenType type);

/// Header bytes for writing.
std::array<std::byte, kZppHeaderBytes> make_zpp_header(const TokenFileInfo& info);
std::array<std::byte, kLlmcHeaderBytes> make_llmc_header(const TokenFileInfo& info);

/// The index (.idx) beside Megatron's token file (.bin).
class MegatronIndex {
 public:
  /// What the .idx starts with.
  static constexpr std::string_view kMagic{"MMIDIDX\0\0", 9};

  /// Both files of a data set named by its .bin, its .idx or the common part.
  static std::filesystem::path bin_path(const std::filesystem::path& path);
  static std::filesystem::path idx_path(const std::filesystem::path& path);

  MegatronIndex() = default;
  /// Errors:  kNotFound; kInvalidArgument when malformed, when the sequences are not back to back,
  ///          or when they do not fill a .bin of `bin_bytes`.
  MegatronIndex(const std::filesystem::path& idx, int64_t bin_bytes);

  const TokenFileInfo& info() const { return info_; }
  /// First tokens of documents within [begin, end), each once, ascending.
  std::vector<int64_t> document_starts(int64_t begin, int64_t end) const;

 private:
  void check_sequences(int64_t bin_bytes) const;
  void check_documents() const;
  int64_t length(int64_t sequence) const;
  int64_t pointer(int64_t sequence) const;
  int64_t document(int64_t index) const;
  int64_t first_token(int64_t document_index) const;

  MappedFile file_;
  TokenFileInfo info_;
  int64_t sequences_ = 0, entries_ = 0;
};

}  // namespace zpp
