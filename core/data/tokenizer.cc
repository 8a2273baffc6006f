#include "core/data/tokenizer.h"

#include <fmt/format.h>

#include "core/error.h"

namespace zpp {

std::vector<int32_t> ByteTokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids(text.size());
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<unsigned char>(text[i]);
  return ids;
}

std::string ByteTokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  text.reserve(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] == kEndOfText) {
      text += "<|endoftext|>";
    } else if (ids[i] >= 0 && ids[i] < kEndOfText) {
      text += static_cast<char>(ids[i]);
    } else {
      throw Error(Code::kInvalidArgument,
                  fmt::format("byte tokenizer: ids are 0 to {}, found {} at index {}", kVocab - 1,
                              ids[i], i));
    }
  }
  return text;
}

}  // namespace zpp
