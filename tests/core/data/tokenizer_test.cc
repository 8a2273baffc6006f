#include "core/data/tokenizer.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace zpp {
namespace {

TEST(ByteTokenizer, AllBytesSurviveTheRoundTrip) {
  std::string text;
  for (int i = 0; i < 256; ++i) text += static_cast<char>(i);
  const ByteTokenizer tokenizer;
  const std::vector<int32_t> ids = tokenizer.encode(text);
  EXPECT_EQ(ids.size(), 256u);
  EXPECT_EQ(ids[200], 200);
  EXPECT_EQ(tokenizer.decode(ids), text);
}

TEST(ByteTokenizer, EndOfTextIsShownAndOtherIdsAreRefused) {
  const ByteTokenizer tokenizer;
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{97, 256, 98}), "a<|endoftext|>b");
  EXPECT_THROW(tokenizer.decode(std::vector<int32_t>{257}), Error);
  EXPECT_THROW(tokenizer.decode(std::vector<int32_t>{-1}), Error);
}

}  // namespace
}  // namespace zpp
