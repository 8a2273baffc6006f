#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tools/bench/gemm_bench.h"
#include "tools/bench/kernel_bench.h"

namespace zpp {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

using Lines = std::vector<std::string>;

Print into(Lines& lines) {
  return [&lines](const std::string& line) { lines.push_back(line); };
}

TEST(GemmBench, PrintsAPeakAndALineForEachProduct) {
  Lines lines;
  GemmBench options;
  options.threads = 2;
  options.widths = {16};
  options.tokens = {8};
  options.vocab = 40;
  options.dtypes = {DType::kF32};
  options.seconds = 0;
  bench_gemm(options, into(lines));
  // A peak, the head of the table, 5 layers x 3 products, the mean.
  EXPECT_THAT(lines, SizeIs(1 + 1 + 15 + 1));
  EXPECT_THAT(lines[0], AllOf(HasSubstr("peak f32"), HasSubstr("on 2 threads (")));
  EXPECT_THAT(lines, Contains(HasSubstr("head  dw += dy^T x")));
}

TEST(GemmBench, RefusesSizesBelowOne) {
  GemmBench options;
  options.tokens = {0};
  EXPECT_THROW(bench_gemm(options, [](const std::string&) {}), Error);
}

TEST(KernelBench, PrintsALineForEachKernel) {
  Lines lines;
  KernelBench options;
  options.threads = 2;
  options.rows = 32;
  options.width = 16;
  options.vocab = 50;
  options.context = 16;
  options.heads = 2;
  options.seconds = 0;
  bench_kernels(options, into(lines));
  EXPECT_THAT(lines[0], HasSubstr("memcpy"));
  for (const char* kernel :
       {"layer_norm_backward", "gelu_tanh", "swiglu", "dropout", "embedding", "cross_entropy",
        "rope", "sum_squares", "adamw", "attention_backward"}) {
    for (const char* dtype : {" f32", "bf16"}) {
      EXPECT_THAT(lines, Contains(AllOf(HasSubstr(kernel), HasSubstr(dtype)))) << kernel;
    }
  }
  EXPECT_THAT(lines, Not(Contains(HasSubstr("nan"))));
}

TEST(KernelBench, RefusesHeadsThatDoNotDivideTheWidth) {
  KernelBench options;
  options.heads = 7;
  EXPECT_THROW(bench_kernels(options, [](const std::string&) {}), Error);
}

}  // namespace
}  // namespace zpp
