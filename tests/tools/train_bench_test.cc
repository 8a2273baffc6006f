#include "tools/bench/train_bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace zpp {
namespace {

using testing::HasSubstr;

TEST(TrainBench, ReportsEachStepAndTheMedianWithoutAnyData) {
  std::vector<std::string> lines;
  bench_train({.config_file = "configs/gpt-tiny.json",
               .overrides = {"run.threads=1"},
               .steps = 3,
               .warmup_steps = 1},
              [&lines](const std::string& line) { lines.push_back(line); });
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_THAT(lines[0], HasSubstr("120,640 parameters, f32, 8 x 64 tokens a step, 1 threads"));
  EXPECT_THAT(lines[1], HasSubstr("(warm-up)"));
  EXPECT_THAT(lines[4], HasSubstr("tok/s  loss"));
  EXPECT_THAT(lines[5], testing::ContainsRegex("median [0-9]+ tok/s, .*mfu .*memory held"));
}

TEST(TrainBench, RefusesToTimeNothing) {
  EXPECT_THROW(bench_train({.config_file = "configs/gpt-tiny.json", .overrides = {}, .steps = 0},
                           [](const std::string&) {}),
               Error);
}

}  // namespace
}  // namespace zpp
