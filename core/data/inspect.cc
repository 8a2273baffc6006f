#include "core/data/inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/data/tokenizer.h"
#include "core/human.h"

namespace zpp {
namespace {

constexpr int64_t kChunk = 1 << 20;
constexpr size_t kMaxHistogram = size_t{1} << 24;  // ids beyond are left out of the entropy

struct Scan {
  int64_t tokens = 0, end_of_texts = 0;
  int32_t least = INT32_MAX, largest = -1;
  double entropy = 0;  // nats
};

double entropy_of(const std::vector<int64_t>& histogram, int64_t total) {
  double sum = 0;
  for (int64_t n : histogram)
    if (n > 0) sum += static_cast<double>(n) * std::log(static_cast<double>(n));
  return std::log(static_cast<double>(total)) - sum / static_cast<double>(total);
}

Scan scan(const TokenFile& file, int64_t limit) {
  Scan result;
  std::vector<int64_t> histogram;
  std::vector<int32_t> ids;
  int64_t counted = 0;
  const int64_t end = std::min(file.size(), limit);
  for (int64_t at = 0; at < end; at += kChunk) {
    ids.resize(static_cast<size_t>(std::min(kChunk, end - at)));
    file.read(at, ids);
    for (int32_t id : ids) {
      result.least = std::min(result.least, id);
      result.largest = std::max(result.largest, id);
      result.end_of_texts += file.info().eot == id;
      const auto index = static_cast<size_t>(id);
      if (index >= kMaxHistogram) continue;
      if (index >= histogram.size()) histogram.resize(std::max(index + 1, histogram.size() * 2));
      ++histogram[index];
      ++counted;
    }
  }
  result.tokens = end;
  if (counted > 0) result.entropy = entropy_of(histogram, counted);
  return result;
}

// Control characters would play tricks on the terminal.
std::string printable(const std::string& text) {
  std::string out = "    | ";
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n')
      out += "\n    | ";
    else if (byte < 0x20 || byte == 0x7f)
      out += fmt::format("\\x{:02x}", byte);
    else
      out += c;
  }
  return out + "\n";
}

std::string sample_text(const TokenFile& file, int64_t begin, int64_t count) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  file.read(begin, ids);
  if (file.info().tokenizer == ByteTokenizer::kName) return printable(ByteTokenizer().decode(ids));
  return fmt::format("    | {}\n", fmt::join(ids, " "));
}

std::string documents_text(const TokenFile& file, const Scan& scanned) {
  if (file.info().documents) return with_commas(*file.info().documents);
  if (!file.info().eot) return "not known (no end-of-text id)";
  return fmt::format("{} ends of text", with_commas(scanned.end_of_texts));
}

std::string tokenizer_text(const TokenFileInfo& info) {
  std::string out = info.tokenizer.empty() ? "not named in the file" : info.tokenizer;
  if (info.vocab > 0) out += fmt::format(", vocabulary {}", with_commas(info.vocab));
  if (info.eot) out += fmt::format(", end of text {}", *info.eot);
  return out;
}

}  // namespace

std::string inspect(const std::filesystem::path& path, const InspectOptions& options) {
  const TokenFile file(path, options.file);
  const TokenFileInfo& info = file.info();
  const Scan scanned = scan(file, std::max<int64_t>(options.scan_tokens, 0));
  std::string out = fmt::format("file       {}\n", file.path().string());
  out += fmt::format("format     {}, {} tokens after {} bytes\n", info.format, to_string(info.type),
                     info.offset);
  out += fmt::format("tokens     {}\n", with_commas(info.tokens));
  out += fmt::format("tokenizer  {}\n", tokenizer_text(info));
  out += fmt::format("documents  {}\n", documents_text(file, scanned));
  if (scanned.tokens > 0) {
    const std::string part =
        scanned.tokens == file.size()
            ? ""
            : fmt::format(" (of the first {} tokens)", with_commas(scanned.tokens));
    out += fmt::format("ids        {} to {}{}\n", scanned.least, scanned.largest, part);
    out += fmt::format("entropy    {:.4f} nats per token, each token alone{}\n", scanned.entropy,
                       part);
  }
  for (int64_t i = 0; i < options.samples && file.size() > 0; ++i) {
    // Quotient and remainder apart, since i * size may not fit 64 bits.
    const int64_t begin =
        file.size() / options.samples * i + file.size() % options.samples * i / options.samples;
    const int64_t count =
        std::min(std::max<int64_t>(options.sample_tokens, 0), file.size() - begin);
    out += fmt::format("\n  tokens {} to {}\n{}", with_commas(begin),
                       with_commas(begin + count - 1), sample_text(file, begin, count));
  }
  return out;
}

}  // namespace zpp
