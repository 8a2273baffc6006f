// The .idx file of a Megatron data set: 34 bytes of header, then three arrays that start at no
// particular alignment.
#include <fmt/format.h>

#include <algorithm>

#include "core/data/token_format.h"
#include "core/error.h"

namespace zpp {
namespace {

constexpr int64_t kHeader = 34;

[[noreturn]] void bad(const MappedFile& file, const std::string& text) {
  throw Error(Code::kInvalidArgument, fmt::format("{}: {}", file.path().string(), text));
}

TokenType type_of_code(const MappedFile& file, int code) {
  switch (code) {
    case 1:
      return TokenType::kU8;
    case 2:
      return TokenType::kI8;
    case 3:
      return TokenType::kI16;
    case 4:
      return TokenType::kI32;
    case 5:
      return TokenType::kI64;
    case 8:
      return TokenType::kU16;
    default:
      break;
  }
  if (code == 6 || code == 7)
    bad(file, fmt::format("type code {} is a floating-point type, not tokens", code));
  bad(file, fmt::format("unknown type code {}, expected 1 to 5 or 8", code));
}

std::filesystem::path with_suffix(std::filesystem::path path, const char* suffix) {
  if (path.extension() == ".bin" || path.extension() == ".idx")
    return path.replace_extension(suffix);
  return path += suffix;
}

}  // namespace

std::filesystem::path MegatronIndex::bin_path(const std::filesystem::path& path) {
  return with_suffix(path, ".bin");
}

std::filesystem::path MegatronIndex::idx_path(const std::filesystem::path& path) {
  return with_suffix(path, ".idx");
}

MegatronIndex::MegatronIndex(const std::filesystem::path& idx, int64_t bin_bytes) : file_(idx) {
  const int64_t size = file_.size();
  if (size < kHeader)
    bad(file_, fmt::format("a Megatron index has at least {} bytes, found {}", kHeader, size));
  const std::byte* at = file_.bytes().data();
  if (std::memcmp(at, kMagic.data(), kMagic.size()) != 0)
    bad(file_, "does not start with the magic MMIDIDX of a Megatron index");
  if (const uint64_t version = load<uint64_t>(at + 9); version != 1)
    bad(file_, fmt::format("version {} of the Megatron index, expected 1", version));
  info_.format = "megatron";
  info_.type = type_of_code(file_, static_cast<int>(at[17]));
  const uint64_t sequences = load<uint64_t>(at + 18), entries = load<uint64_t>(at + 26);
  const auto room = static_cast<uint64_t>(size - kHeader);
  if (sequences > room / 12 || entries > (room - 12 * sequences) / 8)
    bad(file_,
        fmt::format(
            "the header promises {} sequences and {} document entries, more than its {} bytes hold",
            sequences, entries, size));
  const uint64_t rest = room - 12 * sequences - 8 * entries;
  if (rest != 0 && rest != sequences)  // one mode byte per sequence in multimodal sets
    bad(file_, fmt::format("{} bytes after the document entries, expected none", rest));
  sequences_ = static_cast<int64_t>(sequences);
  entries_ = static_cast<int64_t>(entries);
  check_sequences(bin_bytes);
  check_documents();
  info_.tokens = bin_bytes / size_of(info_.type);
  info_.documents = entries_ - 1;
}

int64_t MegatronIndex::length(int64_t sequence) const {
  return load<int32_t>(file_.bytes().data() + kHeader + 4 * sequence);
}

int64_t MegatronIndex::pointer(int64_t sequence) const {
  return load<int64_t>(file_.bytes().data() + kHeader + 4 * sequences_ + 8 * sequence);
}

int64_t MegatronIndex::document(int64_t index) const {
  return load<int64_t>(file_.bytes().data() + kHeader + 12 * sequences_ + 8 * index);
}

void MegatronIndex::check_sequences(int64_t bin_bytes) const {
  int64_t expected = 0;
  for (int64_t s = 0; s < sequences_; ++s) {
    const int64_t tokens = length(s);
    if (tokens < 0) bad(file_, fmt::format("sequence {} has {} tokens", s, tokens));
    if (pointer(s) != expected)
      bad(file_,
          fmt::format("sequence {} starts at byte {}, expected {}: sequences must lie back to back",
                      s, pointer(s), expected));
    expected += tokens * size_of(info_.type);
    if (expected > bin_bytes) break;
  }
  if (expected != bin_bytes)
    bad(file_,
        fmt::format(
            "its sequences {} but the .bin file has {} bytes (do the two files belong together?)",
            expected > bin_bytes ? fmt::format("need {} bytes or more,", expected)
                                 : fmt::format("fill {} bytes,", expected),
            bin_bytes));
}

void MegatronIndex::check_documents() const {
  if (entries_ == 0) bad(file_, "the list of documents is empty; it has to start with 0");
  int64_t previous = 0;
  for (int64_t d = 0; d < entries_; ++d) {
    const int64_t at = document(d);
    if (d == 0 && at != 0)
      bad(file_, fmt::format("the list of documents starts with {}, expected 0", at));
    if (at < previous || at > sequences_)
      bad(file_,
          fmt::format("document entry {} is {}, expected {} to {}", d, at, previous, sequences_));
    previous = at;
  }
  if (previous != sequences_)
    bad(file_, fmt::format("the last document ends at sequence {} of {}", previous, sequences_));
}

int64_t MegatronIndex::first_token(int64_t document_index) const {
  const int64_t sequence = document(document_index);
  return sequence == sequences_ ? info_.tokens : pointer(sequence) / size_of(info_.type);
}

std::vector<int64_t> MegatronIndex::document_starts(int64_t begin, int64_t end) const {
  int64_t low = 0, high = entries_;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (first_token(middle) < begin)
      low = middle + 1;
    else
      high = middle;
  }
  std::vector<int64_t> starts;
  for (; low < entries_ && first_token(low) < end; ++low)
    if (starts.empty() || starts.back() != first_token(low)) starts.push_back(first_token(low));
  return starts;
}

}  // namespace zpp
