#include "core/human.h"

#include <gtest/gtest.h>

namespace zpp {
namespace {

TEST(Human, NumbersReadWell) {
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(124439808), "124,439,808");
  EXPECT_EQ(with_commas(-1234), "-1,234");
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(1536), "1.50 KiB");
  EXPECT_EQ(human_bytes((1 << 20) - 1), "1.00 MiB");
  EXPECT_EQ(human_bytes(int64_t{300} << 30), "300 GiB");
  EXPECT_EQ(human_number(8.55e8), "855 M");
  EXPECT_EQ(human_number(12), "12 ");
  EXPECT_EQ(human_seconds(0.4), "0 s");
  EXPECT_EQ(human_seconds(192), "3 m 12 s");
  EXPECT_EQ(human_seconds(18420), "5 h 07 m");
  EXPECT_EQ(human_seconds(183600), "2 d 03 h");
}

}  // namespace
}  // namespace zpp
