#include "core/data/token_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "core/error.h"

namespace zpp {
namespace {

constexpr size_t kBufferBytes = 1 << 20;

TokenWriter::Options checked(const TokenWriter::Options& options) {
  const auto refuse = [](const std::string& text) { throw Error(Code::kInvalidArgument, text); };
  if (options.format != "zpp" && options.format != "llmc")
    refuse(fmt::format("cannot write format \"{}\", expected zpp or llmc", options.format));
  if (options.type != TokenType::kU16 && options.type != TokenType::kU32)
    refuse(fmt::format("cannot write tokens as {}, expected u16 or u32", to_string(options.type)));
  const int64_t most = options.type == TokenType::kU16 ? 65536 : kMaxVocab;
  if (options.vocab < 0 || options.vocab > most) {
    refuse(fmt::format("a vocabulary of {} does not fit {} tokens, expected 1 to {}", options.vocab,
                       to_string(options.type), most));
  }
  if (options.tokenizer.size() > 32)
    refuse(fmt::format("the tokenizer's name \"{}\" is longer than 32 bytes", options.tokenizer));
  const int64_t bound = options.vocab > 0 ? options.vocab : most;
  if (options.eot && (*options.eot < 0 || *options.eot >= bound))
    refuse(fmt::format("end-of-text id {} is outside the ids 0 to {}", *options.eot, bound - 1));
  return options;
}

}  // namespace

TokenWriter::TokenWriter(const std::filesystem::path& path, const Options& options)
    : options_(checked(options)), file_(path) {
  bound_ =
      options.vocab > 0 ? options.vocab : (options.type == TokenType::kU16 ? 65536 : kMaxVocab);
  buffer_.reserve(kBufferBytes + 4);
  buffer_.resize(static_cast<size_t>(options.format == "zpp" ? kZppHeaderBytes : kLlmcHeaderBytes));
}

template <class T>
void TokenWriter::append(std::span<const int32_t> ids) {
  for (int32_t id : ids) {
    if (id < 0 || id >= bound_) {
      throw Error(Code::kInvalidArgument, fmt::format("{}: id {} is outside the ids 0 to {}",
                                                      path().string(), id, bound_ - 1));
    }
    largest_ = std::max(largest_, id);
    const T value = static_cast<T>(id);
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    buffer_.insert(buffer_.end(), bytes, bytes + sizeof(T));
    if (buffer_.size() >= kBufferBytes) flush();
  }
}

void TokenWriter::write(std::span<const int32_t> ids) {
  tokens_ += static_cast<int64_t>(ids.size());
  if (options_.format == "llmc" && tokens_ > std::numeric_limits<int32_t>::max()) {
    throw Error(Code::kInvalidArgument,
                fmt::format("{}: llmc files count their tokens in 31 bits; use format zpp",
                            path().string()));
  }
  if (options_.type == TokenType::kU16)
    append<uint16_t>(ids);
  else
    append<uint32_t>(ids);
}

void TokenWriter::flush() {
  file_.write(buffer_);
  buffer_.clear();
}

void TokenWriter::commit() {
  flush();
  TokenFileInfo info{.format = options_.format, .type = options_.type};
  info.tokens = tokens_;
  info.vocab = options_.vocab;
  if (info.vocab == 0) info.vocab = std::max<int64_t>(largest_, options_.eot.value_or(0)) + 1;
  info.eot = options_.eot;
  info.documents = std::min(documents_, tokens_);
  info.tokenizer = options_.tokenizer;
  if (options_.format == "zpp")
    file_.write_at(0, make_zpp_header(info));
  else
    file_.write_at(0, make_llmc_header(info));
  file_.commit();
}

}  // namespace zpp
