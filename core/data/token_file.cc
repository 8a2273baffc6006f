#include "core/data/token_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"

namespace zpp {
namespace {

// Calls fn with a value of the C++ type behind `type`.
template <class Fn>
auto with_type(TokenType type, Fn fn) {
  switch (type) {
    case TokenType::kU8:
      return fn(uint8_t{});
    case TokenType::kI8:
      return fn(int8_t{});
    case TokenType::kU16:
      return fn(uint16_t{});
    case TokenType::kI16:
      return fn(int16_t{});
    case TokenType::kI32:
      return fn(int32_t{});
    case TokenType::kU32:
      return fn(uint32_t{});
    case TokenType::kI64:
      return fn(int64_t{});
  }
  throw Error(Code::kInternal, "unknown token type");
}

// Index of the first id that is negative or not below `bound`, or -1. The first loop has no exit,
// so it is fast.
template <class T>
int64_t widen(const std::byte* from, std::span<int32_t> out, int64_t bound) {
  bool bad = false;
  for (size_t i = 0; i < out.size(); ++i) {
    const T id = load<T>(from + i * sizeof(T));
    // A negative id becomes a huge unsigned one.
    bad |= static_cast<uint64_t>(id) >= static_cast<uint64_t>(bound);
    out[i] = static_cast<int32_t>(id);
  }
  if (!bad) return -1;
  int64_t i = 0;
  while (static_cast<uint64_t>(load<T>(from + static_cast<size_t>(i) * sizeof(T))) <
         static_cast<uint64_t>(bound))
    ++i;
  return i;
}

}  // namespace

TokenFile::TokenFile(const std::filesystem::path& path, const TokenFileOptions& options)
    : path_(path) {
  const std::string format = options.format == "auto" ? detect_token_format(path) : options.format;
  if (format == "megatron") {
    path_ = MegatronIndex::bin_path(path);
    file_ = MappedFile(path_);
    index_ = MegatronIndex(MegatronIndex::idx_path(path), file_.size());
    info_ = index_.info();
  } else {
    file_ = MappedFile(path_);
    if (format == "zpp")
      info_ = read_zpp_header(file_);
    else if (format == "llmc")
      info_ = read_llmc_header(file_);
    else if (format == "raw_u16")
      info_ = read_raw_u16(file_);
    else if (format == "text")
      info_ = read_text(file_);
    else
      throw Error(
          Code::kInvalidArgument,
          fmt::format(
              "{}: unknown format \"{}\", expected auto, zpp, llmc, megatron, raw_u16 or text",
              path.string(), format));
  }
  if (options.eot) info_.eot = options.eot;
  const bool file_knows =
      info_.format == "zpp";  // ids of plain text never reach its vocabulary's end
  if (options.vocab > 0 && file_knows && info_.vocab > options.vocab) {
    throw Error(Code::kInvalidArgument, fmt::format("{}: made for a vocabulary of {} ({}), but the "
                                                    "model's is {}: set model.vocab to {} or more",
                                                    path_.string(), info_.vocab, info_.tokenizer,
                                                    options.vocab, info_.vocab));
  }
  if (options.vocab > 0)
    bound_ = options.vocab;
  else if (info_.vocab > 0)
    bound_ = info_.vocab;
}

void TokenFile::read(int64_t begin, std::span<int32_t> out) const {
  const auto count = static_cast<int64_t>(out.size());
  if (begin < 0 || count > info_.tokens || begin > info_.tokens - count) {
    throw Error(Code::kInternal, fmt::format("{}: {} tokens asked for from {} on, the file has {}",
                                             path_.string(), count, begin, info_.tokens));
  }
  const std::byte* from = file_.bytes().data() + info_.offset + begin * size_of(info_.type);
  if (count == 0) return;
  with_type(info_.type, [&](auto tag) {
    using T = decltype(tag);
    const int64_t at = widen<T>(from, out, bound_);
    if (at >= 0)
      bad_token(begin + at,
                static_cast<int64_t>(load<T>(from + static_cast<size_t>(at) * sizeof(T))));
  });
}

void TokenFile::bad_token(int64_t position, int64_t id) const {
  throw Error(Code::kInvalidArgument,
              fmt::format("{}: token {} (at byte {}) is {}, but the vocabulary has the ids 0 to {}",
                          path_.string(), position, info_.offset + position * size_of(info_.type),
                          id, bound_ - 1));
}

bool TokenFile::knows_documents() const {
  return info_.eot.has_value() || info_.format == "megatron" || info_.format == "text";
}

std::vector<int64_t> TokenFile::document_starts(int64_t begin, int64_t end) const {
  end = std::min(end, info_.tokens);
  if (info_.format == "megatron") return index_.document_starts(begin, end);
  std::vector<int64_t> starts;
  if (begin <= 0 && end > 0) starts.push_back(0);
  if (!info_.eot) return starts;
  with_type(info_.type, [&](auto tag) {
    using T = decltype(tag);
    const std::byte* tokens = file_.bytes().data() + info_.offset;
    for (int64_t p = std::max<int64_t>(begin, 1); p < end; ++p) {
      const T before = load<T>(tokens + static_cast<size_t>(p - 1) * sizeof(T));
      if (static_cast<int64_t>(before) == *info_.eot) starts.push_back(p);
    }
  });
  return starts;
}

}  // namespace zpp
