#include "parallel/schedule.h"

#include <gtest/gtest.h>

namespace zpp {
namespace {

ScheduleConfig make(const char* name, int64_t warmup = 0, double min_lr = 0.0,
                    std::optional<int64_t> decay_steps = {}) {
  return {.name = name, .warmup_steps = warmup, .min_lr = min_lr, .decay_steps = decay_steps};
}

TEST(Schedule, WarmsUpLinearlyToThePeakWhateverComesAfter) {
  for (const char* name : {"cosine", "linear", "constant", "wsd"}) {
    const ScheduleConfig config = make(name, 4);
    EXPECT_DOUBLE_EQ(learning_rate(config, 1.0, 0, 100), 0.25) << name;
    EXPECT_DOUBLE_EQ(learning_rate(config, 1.0, 1, 100), 0.5) << name;
    EXPECT_DOUBLE_EQ(learning_rate(config, 1.0, 3, 100), 1.0) << name;
    EXPECT_DOUBLE_EQ(learning_rate(config, 1.0, 4, 100), 1.0) << name;
  }
}

TEST(Schedule, ConstantStaysAtThePeak) {
  EXPECT_EQ(learning_rate(make("constant"), 3e-4, 0, 10), 3e-4);
  EXPECT_EQ(learning_rate(make("constant"), 3e-4, 1000, 10), 3e-4);
}

TEST(Schedule, LinearIsAStraightLineToTheFloor) {
  const ScheduleConfig config = make("linear", 10, 0.2);
  EXPECT_DOUBLE_EQ(learning_rate(config, 1.0, 10, 110), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(config, 1.0, 60, 110), 0.6);
  EXPECT_DOUBLE_EQ(learning_rate(config, 1.0, 85, 110), 0.4);
  EXPECT_DOUBLE_EQ(learning_rate(config, 1.0, 110, 110), 0.2);
}

TEST(Schedule, CosineIsHalfACosineToTheFloor) {
  const ScheduleConfig config = make("cosine", 0, 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(config, 1.1, 0, 120), 1.1);
  EXPECT_NEAR(learning_rate(config, 1.1, 40, 120), 0.1 + 0.75, 1e-12);
  EXPECT_NEAR(learning_rate(config, 1.1, 60, 120), 0.1 + 0.5, 1e-12);
  EXPECT_NEAR(learning_rate(config, 1.1, 80, 120), 0.1 + 0.25, 1e-12);
  EXPECT_NEAR(learning_rate(config, 1.1, 120, 120), 0.1, 1e-12);
}

TEST(Schedule, DecayStepsEndTheDecayBeforeTheRunDoes) {
  for (const char* name : {"cosine", "linear"}) {
    const ScheduleConfig config = make(name, 0, 0.25, 50);
    EXPECT_NEAR(learning_rate(config, 1.0, 25, 1000), 0.625, 1e-12) << name;
    EXPECT_NEAR(learning_rate(config, 1.0, 50, 1000), 0.25, 1e-12) << name;
    EXPECT_NEAR(learning_rate(config, 1.0, 999, 1000), 0.25, 1e-12) << name;
  }
}

TEST(Schedule, WsdHoldsThePeakAndDecaysAtTheEnd) {
  const ScheduleConfig by_default = make("wsd", 10);
  EXPECT_EQ(learning_rate(by_default, 1.0, 80, 100), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(by_default, 1.0, 90, 100), 0.5);
  const ScheduleConfig longer = make("wsd", 10, 0.2, 40);
  EXPECT_EQ(learning_rate(longer, 1.0, 60, 100), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(longer, 1.0, 80, 100), 0.6);
  EXPECT_DOUBLE_EQ(learning_rate(longer, 1.0, 100, 100), 0.2);
}

TEST(Schedule, WsdOfAVeryShortRunStillDecays) {
  EXPECT_EQ(learning_rate(make("wsd"), 1.0, 0, 1), 1.0);
  EXPECT_EQ(learning_rate(make("wsd"), 1.0, 1, 1), 0.0);
}

}  // namespace
}  // namespace zpp
