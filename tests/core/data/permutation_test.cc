#include "core/data/permutation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/error.h"

namespace zpp {
namespace {

void expect_bijection(int64_t size, uint64_t seed) {
  const Permutation permutation(size, seed, 1);
  std::vector<bool> seen(static_cast<size_t>(size), false);
  for (int64_t i = 0; i < size; ++i) {
    const int64_t image = permutation(i);
    ASSERT_TRUE(image >= 0 && image < size);
    ASSERT_FALSE(seen[static_cast<size_t>(image)]) << "size " << size << " index " << i;
    seen[static_cast<size_t>(image)] = true;
  }
}

TEST(Permutation, IsABijectionForSmallSizes) {
  for (int64_t size = 1; size <= 50; ++size)
    for (uint64_t seed : {0u, 1u, 99u}) expect_bijection(size, seed);
}

TEST(Permutation, IsABijectionForALargeOddSize) { expect_bijection(1'000'003, 7); }

TEST(Permutation, DependsOnSeedAndStream) {
  const Permutation a(1000, 1, 1), b(1000, 2, 1), c(1000, 1, 2), again(1000, 1, 1);
  int same_b = 0, same_c = 0;
  for (int64_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(a(i), again(i));
    same_b += a(i) == b(i);
    same_c += a(i) == c(i);
  }
  EXPECT_LT(same_b, 10);
  EXPECT_LT(same_c, 10);
}

TEST(Permutation, FirstImagesAreSpreadEvenlyOverSeeds) {
  // Chi-square with 9 degrees of freedom: 27.9 is passed by chance once in a thousand.
  for (int64_t index : {0, 5, 9}) {
    std::vector<int> count(10, 0);
    for (uint64_t seed = 0; seed < 5000; ++seed)
      ++count[static_cast<size_t>(Permutation(10, seed, 3)(index))];
    double chi = 0;
    for (int c : count) chi += (c - 500.0) * (c - 500.0) / 500.0;
    EXPECT_LT(chi, 27.9) << "index " << index;
  }
}

TEST(Permutation, NeighboursLandFarApart) {
  const int64_t size = 100'000;
  const Permutation permutation(size, 5, 0);
  double distance = 0;
  for (int64_t i = 0; i + 1 < 10'000; ++i)
    distance += std::abs(static_cast<double>(permutation(i + 1) - permutation(i)));
  EXPECT_NEAR(distance / 9999 / static_cast<double>(size), 1.0 / 3, 0.01);
}

TEST(Permutation, HugeSizesWork) {
  const int64_t size = int64_t{1} << 62;
  const int64_t image = Permutation(size, 1, 1)(size - 1);
  EXPECT_TRUE(image >= 0 && image < size);
}

TEST(Permutation, RefusesSizesItCannotPermute) {
  EXPECT_THROW(Permutation(0, 1, 1), Error);
  EXPECT_THROW(Permutation(-4, 1, 1), Error);
  EXPECT_THROW(Permutation(INT64_MAX, 1, 1), Error);
}

}  // namespace
}  // namespace zpp
