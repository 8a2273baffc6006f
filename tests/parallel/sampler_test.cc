#include "parallel/sampler.h"

#include <gtest/gtest.h>

#include <cmath>

namespace zpp {
namespace {

TEST(PickToken, TemperatureZeroTakesTheMostLikelyAndTheLowerIdOfTwo) {
  EXPECT_EQ(pick_token(std::vector<double>{0, 3, 1, 3}, 0.0, 0, 0.9), 1);
}

TEST(PickToken, FollowsTheDistribution) {
  // Probabilities 1/2, 1/4, 1/4.
  const std::vector<double> logits = {std::log(2.0), 0.0, 0.0};
  EXPECT_EQ(pick_token(logits, 1.0, 0, 0.01), 0);
  EXPECT_EQ(pick_token(logits, 1.0, 0, 0.49), 0);
  EXPECT_EQ(pick_token(logits, 1.0, 0, 0.51), 1);
  EXPECT_EQ(pick_token(logits, 1.0, 0, 0.74), 1);
  EXPECT_EQ(pick_token(logits, 1.0, 0, 0.76), 2);
  EXPECT_EQ(pick_token(logits, 1.0, 0, 0.999999), 2);
}

TEST(PickToken, TemperatureSharpensAndFlattens) {
  const std::vector<double> logits = {std::log(2.0), 0.0};
  EXPECT_EQ(pick_token(logits, 0.5, 0, 0.79), 0);  // 4 : 1
  EXPECT_EQ(pick_token(logits, 0.5, 0, 0.81), 1);
  EXPECT_EQ(pick_token(logits, 1000.0, 0, 0.51), 1);
}

TEST(PickToken, RefusesLogitsThatAreNotNumbers) {
  EXPECT_THROW(pick_token(std::vector<double>{0, NAN, 1}, 1.0, 2, 0.5), Error);
}

TEST(PickToken, TopKLeavesOutAllOthers) {
  const std::vector<double> logits = {1, 5, 2, 5, 4};
  for (double u = 0.05; u < 1.0; u += 0.1) {
    const int32_t id = pick_token(logits, 10.0, 2, u);
    EXPECT_TRUE(id == 1 || id == 3) << id;
  }
  EXPECT_EQ(pick_token(logits, 1.0, 1, 0.99), 1);
  EXPECT_EQ(pick_token(logits, 1.0, 100, 1e-6), 0);
}

TEST(PickToken, HugeLogitsDoNotOverflow) {
  EXPECT_EQ(pick_token(std::vector<double>{1e4, -1e4, 0}, 1.0, 0, 0.99), 0);
}

}  // namespace
}  // namespace zpp
