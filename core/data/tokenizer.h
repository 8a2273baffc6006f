// Text to token ids and back.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace zpp {

/// One token per byte, and one that ends a document. Any bytes are valid text.
class ByteTokenizer {
 public:
  static constexpr std::string_view kName = "byte";
  static constexpr int32_t kEndOfText = 256;
  static constexpr int64_t kVocab = 257;

  std::string_view name() const { return kName; }
  int64_t vocab() const { return kVocab; }

  /// The ids of `text`, without an end-of-text.
  std::vector<int32_t> encode(std::string_view text) const;
  /// End-of-text shows as "<|endoftext|>".
  /// Errors:  kInvalidArgument for an id outside the vocabulary, with its index.
  std::string decode(std::span<const int32_t> ids) const;
};

}  // namespace zpp
