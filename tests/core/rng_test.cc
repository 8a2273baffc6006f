#include "core/rng.h"

#include <gtest/gtest.h>

#include <set>

namespace zpp {
namespace {

using Words = std::array<uint32_t, 4>;

// Known answers published with the Random123 library.
TEST(Philox, GivesThePublishedAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(HashName, IsFnv1a) {
  static_assert(hash_name("") == 0xcbf29ce484222325ULL);
  static_assert(hash_name("a") == 0xaf63dc4c8601ec8cULL);
  static_assert(hash_name("foobar") == 0x85944171f73967e8ULL);
}

TEST(MixHash, TellsOrderAndNeighboursApart) {
  std::set<uint64_t> seen;
  for (uint64_t a = 0; a < 64; ++a) {
    for (uint64_t b = 0; b < 64; ++b) seen.insert(mix_hash(a, b));
  }
  EXPECT_EQ(seen.size(), 64u * 64u);
}

TEST(RngKey, OffsetShiftsTheStream) {
  const RngKey key{42, hash_name("blocks.0.w"), 0};
  for (uint64_t offset : {1, 2, 3, 4, 7, 1000}) {
    RngKey shifted = key;
    shifted.offset = offset;
    for (uint64_t i = 0; i < 20; ++i) EXPECT_EQ(shifted.bits(i), key.bits(offset + i));
    for (uint64_t i = 0; i < 20; ++i) {
      EXPECT_EQ(normal_at(shifted, i), normal_at(key, offset + i));
    }
  }
}

TEST(RngKey, ElementsBeyond32BitsDiffer) {
  const RngKey key{1, 2, 0};
  EXPECT_NE(key.bits(5), key.bits(5 + (uint64_t{1} << 34)));
}

TEST(RngKey, SeedAndNameBothMatter) {
  const RngKey key{1, 2, 0};
  EXPECT_NE(key.block(0), (RngKey{2, 2, 0}.block(0)));
  EXPECT_NE(key.block(0), (RngKey{1, 3, 0}.block(0)));
  EXPECT_NE(key.block(0), (RngKey{uint64_t{1} << 32, 2, 0}.block(0)));
  EXPECT_NE(key.block(0), (RngKey{1, uint64_t{2} << 32, 0}.block(0)));
}

TEST(Uniform, StaysInsideTheOpenInterval) {
  EXPECT_GT(uniform_from_bits(0), 0.0f);
  EXPECT_LT(uniform_from_bits(~0u), 1.0f);
}

TEST(Uniform, HasTheRightMoments) {
  const RngKey key{7, hash_name("uniform"), 0};
  constexpr int kCount = 100000;
  double sum = 0;
  double squares = 0;
  for (uint64_t i = 0; i < kCount; ++i) {
    const double u = uniform_from_bits(key.bits(i));
    sum += u;
    squares += u * u;
  }
  const double mean = sum / kCount;
  EXPECT_NEAR(mean, 0.5, 0.005);
  EXPECT_NEAR(squares / kCount - mean * mean, 1.0 / 12, 0.002);
}

TEST(Normal, HasTheRightMomentsAndNoCorrelationWithinPairs) {
  const RngKey key{7, hash_name("normal"), 0};
  constexpr int kCount = 100000;
  double sum = 0, squares = 0, fourth = 0, products = 0;
  for (uint64_t i = 0; i < kCount; ++i) {
    const double x = normal_at(key, i);
    ASSERT_TRUE(std::isfinite(x));
    sum += x;
    squares += x * x;
    fourth += x * x * x * x;
    if (i % 2 == 1) products += x * normal_at(key, i - 1);
  }
  EXPECT_NEAR(sum / kCount, 0.0, 0.015);
  EXPECT_NEAR(squares / kCount, 1.0, 0.02);
  EXPECT_NEAR(fourth / kCount, 3.0, 0.15);
  EXPECT_NEAR(products / (kCount / 2), 0.0, 0.02);
}

}  // namespace
}  // namespace zpp
