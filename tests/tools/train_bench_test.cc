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

TEST(TrainBench, SplitsTheMedianStepByKernelFamily) {
  std::vector<std::string> lines;
  bench_train({.config_file = "configs/gpt-tiny.json",
               .overrides = {"run.threads=2", "train.global_batch=2"},
               .steps = 2,
               .warmup_steps = 1,
               .profile = true,
               .product_seconds = 0},
              [&lines](const std::string& line) { lines.push_back(line); });
  for (const char* family :
       {"gemm forward", "gemm dx", "gemm dW", "attention ", "attention_backward", "layer_norm ",
        "layer_norm_backward", "gelu ", "gelu_backward", "cross_entropy", "embedding ",
        "embedding_backward", "sum_squares", "adamw", "copies", "host", "idle", "total"}) {
    EXPECT_THAT(lines, testing::Contains(testing::StartsWith(family)));
  }
  EXPECT_THAT(lines.back(), testing::ContainsRegex("model FLOP/s .* % of the .*FLOP/s at which"));
}

TEST(TrainBench, RefusesToTimeNothing) {
  EXPECT_THROW(bench_train({.config_file = "configs/gpt-tiny.json", .overrides = {}, .steps = 0},
                           [](const std::string&) {}),
               Error);
}

}  // namespace
}  // namespace zpp
