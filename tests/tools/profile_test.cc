#include "tools/bench/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace zpp {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

constexpr MachineLimits kMachine{.bytes_per_s = 1e9, .flops_per_s = 1e10};

void tell(Profiler& profiler, const char* name, double ms, const Work& work) {
  const std::chrono::steady_clock::time_point begin;
  const std::chrono::duration<double, std::milli> duration(ms);
  profiler.task_ran(
      {name, work, begin,
       begin + std::chrono::duration_cast<std::chrono::steady_clock::duration>(duration)});
}

TEST(Profiler, SumsTasksByFamilyAndForgetsThemWithTheStep) {
  Profiler profiler(kMachine);
  profiler.begin_step();
  tell(profiler, "copy", 2, {.bytes = 1e6});
  tell(profiler, "fill", 3, {.bytes = 1e6});
  tell(profiler, "rope", 4, {.bytes = 5e6});
  const StepProfile step = profiler.end_step();
  ASSERT_THAT(step.families, SizeIs(2));
  const StepProfile::Family& copies = step.families.at("copies");
  EXPECT_EQ(copies.calls, 2);
  EXPECT_NEAR(copies.seconds, 5e-3, 1e-9);
  EXPECT_NEAR(copies.bound_s, 2e-3, 1e-9);
  profiler.begin_step();
  EXPECT_THAT(profiler.end_step().families, SizeIs(0));
}

TEST(Profiler, BoundsEachCallByTheSlowerOfMemoryAndArithmetic) {
  Profiler profiler(kMachine);
  profiler.begin_step();
  tell(profiler, "gemm_nt", 10, {.bytes = 2e6, .flops = 1e7, .shape = {4, 5, 6}});  // 2 and 1 ms
  tell(profiler, "gemm_nt", 10, {.bytes = 1e6, .flops = 5e7, .shape = {4, 5, 6}});  // 1 and 5 ms
  const StepProfile step = profiler.end_step();
  EXPECT_NEAR(step.families.at("gemm forward").bound_s, 7e-3, 1e-9);
  EXPECT_EQ(step.product_flops.at({"gemm_nt", {4, 5, 6}}), 6e7);
}

TEST(Profile, PrintsTheLongestFamilyFirstThenIdleTimeAndTheTotal) {
  Profiler profiler(kMachine);
  profiler.begin_step();
  tell(profiler, "rope", 1, {.bytes = 5e5});
  tell(profiler, "gemm_tn", 4, {.bytes = 1e3, .flops = 1e7, .shape = {4, 5, 6}});
  tell(profiler, "copy_to_host", 0.5, {});
  StepProfile step = profiler.end_step();
  step.seconds = 10e-3;
  std::vector<std::string> lines;
  print_profile(step, kMachine, [&](const std::string& line) { lines.push_back(line); });
  ASSERT_THAT(lines, SizeIs(7));
  EXPECT_THAT(lines[0], HasSubstr("10.0 ms"));
  EXPECT_THAT(lines[2], AllOf(StartsWith("gemm dW"), ContainsRegex("4\\.00 +40\\.0 %"),
                              HasSubstr("25.0 % of GEMM peak")));
  EXPECT_THAT(lines[3], AllOf(StartsWith("rope"), HasSubstr("50.0 % of memcpy")));
  EXPECT_THAT(lines[4], StartsWith("host"));
  EXPECT_THAT(lines[5], AllOf(StartsWith("idle"), ContainsRegex("4\\.50 +45\\.0 %$")));
  EXPECT_THAT(lines[6], AllOf(StartsWith("total"), HasSubstr("15.0 % of both")));
}

TEST(Profile, MeasuresTheProductsOfAStepAlone) {
  Runtime::Options options;
  options.threads = 1;
  Runtime runtime(options);
  StepProfile step;
  EXPECT_EQ(gemm_rate_on_shapes(runtime, step, DType::kF32, 0.0), 0.0);
  step.product_flops[{"gemm_nt", {32, 48, 64}}] = 1e6;
  step.product_flops[{"gemm_nn", {32, 64, 48}}] = 1e6;
  step.product_flops[{"gemm_tn", {48, 64, 32}}] = 1e6;
  EXPECT_GT(gemm_rate_on_shapes(runtime, step, DType::kF32, 0.0), 1e6);
}

}  // namespace
}  // namespace zpp
