#include "core/data/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "core/data/token_writer.h"
#include "core/error.h"

namespace zpp {
namespace {

constexpr int64_t kChunk = 1 << 20;

TokenWriter::Options writer_options(const TokenFile& in, const ConvertOptions& options) {
  const TokenFileInfo& info = in.info();
  TokenWriter::Options out{.format = options.to};
  out.vocab = options.from.vocab > 0 ? options.from.vocab : info.vocab;
  const int64_t largest_type = size_of(info.type) <= 2 ? 65536 : kMaxVocab;
  const int64_t bound = out.vocab > 0 ? out.vocab : largest_type;
  out.type = bound <= 65536 ? TokenType::kU16 : TokenType::kU32;
  out.eot = info.eot;
  out.tokenizer = options.tokenizer.empty() ? info.tokenizer : options.tokenizer;
  return out;
}

// Copies document by document or, where the tokens themselves mark the ends, simply all of it.
void copy(const TokenFile& in, TokenWriter& out) {
  const bool insert = in.info().format == "megatron" && in.info().eot.has_value();
  std::vector<int32_t> ids;
  int32_t last = -1;
  const auto end_document = [&] {
    const auto eot = static_cast<int32_t>(*in.info().eot);
    if (last != eot) out.write(std::array{eot});
    if (last != eot) out.count_document();
    last = -1;
  };
  for (int64_t at = 0; at < in.size(); at += kChunk) {
    const int64_t end = std::min(in.size(), at + kChunk);
    ids.resize(static_cast<size_t>(end - at));
    in.read(at, ids);
    size_t written = 0;
    const auto write_to = [&](size_t upto) {
      const std::span<const int32_t> part = std::span(ids).subspan(written, upto - written);
      if (part.empty()) return;
      out.write(part);
      for (int32_t id : part)
        if (in.info().eot == id) out.count_document();
      last = part.back();
      written = upto;
    };
    if (insert) {
      for (int64_t start : in.document_starts(at, end)) {
        write_to(static_cast<size_t>(start - at));
        if (start > 0) end_document();
      }
    }
    write_to(ids.size());
  }
  if (insert && in.size() > 0) end_document();
}

}  // namespace

ConvertReport convert(const std::filesystem::path& input, const std::filesystem::path& output,
                      const ConvertOptions& options) {
  const TokenFile in(input, options.from);
  std::error_code error;
  if (in.path() == output || std::filesystem::equivalent(in.path(), output, error))
    throw Error(Code::kInvalidArgument,
                fmt::format("convert: {} is both input and output", output.string()));
  const TokenWriter::Options with = writer_options(in, options);
  TokenWriter out(output, with);
  copy(in, out);
  out.commit();
  const bool kept =
      options.to == "llmc" ? with.eot == llmc_end_of_text(with.type) : with.eot.has_value();
  return {.tokens = out.tokens(), .documents = out.documents(), .documents_kept = kept};
}

}  // namespace zpp
