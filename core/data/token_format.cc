#include "core/data/token_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "core/error.h"

namespace zpp {
namespace {

constexpr std::string_view kZppMagic = "ZPPTOKN1";
constexpr int32_t kLlmcMagic = 20240520, kLlmcMagicLlama3 = 20240801;
constexpr int32_t kLlmcVersion = 1, kLlmcVersionLlama3 = 7;
// llm.c writes these between documents and does not say so in the file.
constexpr int64_t kGpt2EndOfText = 50256, kLlama3BeginOfText = 128000;
constexpr size_t kNameBytes = 32;

[[noreturn]] void bad(const MappedFile& file, const std::string& text) {
  throw Error(Code::kInvalidArgument, fmt::format("{}: {}", file.path().string(), text));
}

std::string_view text_of(const MappedFile& file, int64_t at, int64_t length) {
  const int64_t end = std::min(file.size(), at + length);
  if (at >= end) return {};
  return {reinterpret_cast<const char*>(file.bytes().data()) + at, static_cast<size_t>(end - at)};
}

void need_header(const MappedFile& file, std::string_view format, int64_t bytes) {
  if (file.size() < bytes)
    bad(file, fmt::format("{} file has a header of {} bytes, this file has {} bytes", format, bytes,
                          file.size()));
}

// Tokens must fill the file to its last byte; no product here can overflow.
void need_exact_size(const MappedFile& file, int64_t header, uint64_t tokens, int64_t width) {
  const int64_t room = file.size() - header;
  if (room % width == 0 && tokens == static_cast<uint64_t>(room / width)) return;
  bad(file,
      fmt::format(
          "the header promises {} tokens of {} bytes, but {} bytes follow it{}", tokens, width,
          room, static_cast<uint64_t>(room / width) < tokens ? " (a copy that was cut off?)" : ""));
}

std::string head_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::string head(16, '\0');
  in.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(static_cast<size_t>(std::max<std::streamsize>(in.gcount(), 0)));
  return head;
}

int32_t first_int(std::string_view head) {
  return head.size() < 4 ? 0 : load<int32_t>(reinterpret_cast<const std::byte*>(head.data()));
}

bool is_llmc(std::string_view head) {
  return first_int(head) == kLlmcMagic || first_int(head) == kLlmcMagicLlama3;
}

// Why a file that is none of ours may have been given, as the end of an error message.
std::string hint_for(std::string_view head) {
  constexpr std::string_view kTokenize =
      "text has to go through `zpp-data tokenize` first (or use format \"text\")";
  if (head.empty()) return "it is empty";
  if (head.starts_with("\x1f\x8b")) return "it is compressed: zcat FILE | zpp-data tokenize -";
  if (head.starts_with("\x93NUMPY"))
    return "it is a NumPy array: write its raw bytes and use format \"raw_u16\"";
  if (head.front() == '{') return fmt::format("it looks like JSON: {}", kTokenize);
  if (first_int(head) == 20240522) return "it is an llm.c evaluation set, not a token file";
  if (first_int(head) == 20240326) return "it is an llm.c model, not a token file";
  const bool text = std::all_of(head.begin(), head.end(), [](char c) {
    return static_cast<unsigned char>(c) >= 32 || c == '\n' || c == '\r' || c == '\t';
  });
  if (text) return fmt::format("it looks like text: {}", kTokenize);
  return "files without a header need their format named: raw_u16 (nanoGPT) or text";
}

template <class T>
void store(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof(T));
}

}  // namespace

int64_t size_of(TokenType type) {
  switch (type) {
    case TokenType::kU8:
    case TokenType::kI8:
      return 1;
    case TokenType::kU16:
    case TokenType::kI16:
      return 2;
    case TokenType::kI32:
    case TokenType::kU32:
      return 4;
    case TokenType::kI64:
      return 8;
  }
  return 0;
}

const char* to_string(TokenType type) {
  switch (type) {
    case TokenType::kU8:
      return "u8";
    case TokenType::kI8:
      return "i8";
    case TokenType::kU16:
      return "u16";
    case TokenType::kI16:
      return "i16";
    case TokenType::kI32:
      return "i32";
    case TokenType::kU32:
      return "u32";
    case TokenType::kI64:
      return "i64";
  }
  return "?";
}

int64_t llmc_end_of_text(TokenType type) {
  return size_of(type) == 4 ? kLlama3BeginOfText : kGpt2EndOfText;
}

std::string detect_token_format(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  const bool has_index = head_of(MegatronIndex::idx_path(path)).starts_with(MegatronIndex::kMagic);
  if (path.extension() == ".idx") return "megatron";
  if (!fs::exists(path)) {
    if (has_index) return "megatron";
    throw Error(Code::kNotFound, fmt::format("{}: no such file", path.string()));
  }
  if (!fs::is_regular_file(path))
    throw Error(Code::kInvalidArgument, fmt::format("{}: not a regular file", path.string()));
  const std::string head = head_of(path);
  if (head.starts_with(kZppMagic)) return "zpp";
  if (is_llmc(head)) return "llmc";
  if (has_index) return "megatron";
  throw Error(Code::kInvalidArgument, fmt::format("{}: not a zpp, llmc or megatron token file; {}",
                                                  path.string(), hint_for(head)));
}

TokenFileInfo read_zpp_header(const MappedFile& file) {
  need_header(file, "a zpp", kZppHeaderBytes);
  const std::byte* at = file.bytes().data();
  if (text_of(file, 0, 8) != kZppMagic)
    bad(file, "does not start with the magic of a zpp token file");
  const uint32_t version = load<uint32_t>(at + 8), width = load<uint32_t>(at + 12);
  const uint64_t tokens = load<uint64_t>(at + 16), vocab = load<uint64_t>(at + 24);
  const int64_t eot = load<int64_t>(at + 32);
  const uint64_t documents = load<uint64_t>(at + 40);
  if (version != 1)
    bad(file, fmt::format("version {} of the zpp token format, expected 1", version));
  if (width != 2 && width != 4)
    bad(file, fmt::format("{} bytes per token, expected 2 or 4", width));
  if (vocab == 0 || vocab > static_cast<uint64_t>(kMaxVocab))
    bad(file, fmt::format("a vocabulary of {}, expected 1 to {}", vocab, kMaxVocab));
  if (eot < -1 || eot >= static_cast<int64_t>(vocab))
    bad(file, fmt::format("end-of-text id {} is outside the vocabulary of {}", eot, vocab));
  need_exact_size(file, kZppHeaderBytes, tokens, width);
  if (documents > tokens) bad(file, fmt::format("{} documents in {} tokens", documents, tokens));
  const std::string_view name = text_of(file, 48, kNameBytes);
  const std::string_view tokenizer = name.substr(0, name.find('\0'));
  const auto printable = [](char c) { return c > 32 && c < 127; };
  if (!std::all_of(tokenizer.begin(), tokenizer.end(), printable) ||
      name.find_first_not_of('\0', tokenizer.size()) != std::string_view::npos)
    bad(file, "the tokenizer's name in the header is damaged");
  if (text_of(file, 80, 48).find_first_not_of('\0') != std::string_view::npos)
    bad(file, "the last 48 bytes of the header are not zero: damaged, or made by a later version");
  TokenFileInfo info{.format = "zpp", .type = width == 2 ? TokenType::kU16 : TokenType::kU32};
  info.offset = kZppHeaderBytes;
  info.tokens = static_cast<int64_t>(tokens);
  info.vocab = static_cast<int64_t>(vocab);
  if (eot >= 0) info.eot = eot;
  info.documents = static_cast<int64_t>(documents);
  info.tokenizer = tokenizer;
  return info;
}

TokenFileInfo read_llmc_header(const MappedFile& file) {
  if (file.size() >= 4 && !is_llmc(text_of(file, 0, 4))) {
    bad(file, fmt::format("magic number {}, expected {} or {} of an llm.c token file",
                          first_int(text_of(file, 0, 4)), kLlmcMagic, kLlmcMagicLlama3));
  }
  need_header(file, "an llm.c", kLlmcHeaderBytes);
  const std::byte* at = file.bytes().data();
  const int32_t magic = load<int32_t>(at), version = load<int32_t>(at + 4),
                tokens = load<int32_t>(at + 8);
  const bool llama3 = magic == kLlmcMagicLlama3;
  const int32_t expected = llama3 ? kLlmcVersionLlama3 : kLlmcVersion;
  if (version != expected)
    bad(file, fmt::format("version {} of the llm.c token format, expected {}", version, expected));
  if (tokens < 0) bad(file, fmt::format("a token count of {}", tokens));
  TokenFileInfo info{.format = "llmc", .type = llama3 ? TokenType::kU32 : TokenType::kU16};
  need_exact_size(file, kLlmcHeaderBytes, static_cast<uint64_t>(tokens), size_of(info.type));
  info.offset = kLlmcHeaderBytes;
  info.tokens = tokens;
  info.eot = llmc_end_of_text(info.type);
  return info;
}

TokenFileInfo read_raw_u16(const MappedFile& file) {
  const std::string_view head = text_of(file, 0, 16);
  if (head.starts_with(kZppMagic) || is_llmc(head) || head.starts_with(MegatronIndex::kMagic))
    bad(file, "format raw_u16 was named, but the file starts with the header of another format");
  if (file.size() % 2 != 0)
    bad(file, fmt::format("raw_u16 has 2 bytes per token, this file has {} bytes", file.size()));
  TokenFileInfo info{.format = "raw_u16", .type = TokenType::kU16};
  info.tokens = file.size() / 2;
  return info;
}

TokenFileInfo read_text(const MappedFile& file) {
  const std::string_view head = text_of(file, 0, 16);
  if (head.starts_with(kZppMagic) || is_llmc(head) || head.starts_with(MegatronIndex::kMagic))
    bad(file, "format text was named, but the file starts with the header of another format");
  TokenFileInfo info{.format = "text", .type = TokenType::kU8};
  info.tokens = file.size();
  info.vocab = 257;
  info.documents = 1;
  info.tokenizer = "byte";
  return info;
}

std::array<std::byte, kZppHeaderBytes> make_zpp_header(const TokenFileInfo& info) {
  std::array<std::byte, kZppHeaderBytes> header{};
  std::memcpy(header.data(), kZppMagic.data(), kZppMagic.size());
  store<uint32_t>(header.data() + 8, 1);
  store<uint32_t>(header.data() + 12, static_cast<uint32_t>(size_of(info.type)));
  store<int64_t>(header.data() + 16, info.tokens);
  store<int64_t>(header.data() + 24, info.vocab);
  store<int64_t>(header.data() + 32, info.eot.value_or(-1));
  store<int64_t>(header.data() + 40, info.documents.value_or(0));
  std::memcpy(header.data() + 48, info.tokenizer.data(),
              std::min(info.tokenizer.size(), kNameBytes));
  return header;
}

std::array<std::byte, kLlmcHeaderBytes> make_llmc_header(const TokenFileInfo& info) {
  const bool wide = size_of(info.type) == 4;
  std::array<std::byte, kLlmcHeaderBytes> header{};
  store<int32_t>(header.data(), wide ? kLlmcMagicLlama3 : kLlmcMagic);
  store<int32_t>(header.data() + 4, wide ? kLlmcVersionLlama3 : kLlmcVersion);
  store<int32_t>(header.data() + 8, static_cast<int32_t>(info.tokens));
  return header;
}

}  // namespace zpp
