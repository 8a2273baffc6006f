#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tools/bench/comm_bench.h"
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

/// What the last column of the line says that starts with these words.
double last_number(const Lines& lines, const std::string& name, const std::string& wire) {
  for (const std::string& line : lines) {
    if (line.starts_with(name) && line.find(" " + wire + "  ") != std::string::npos) {
      return std::stod(line.substr(line.find_last_of(' ')));
    }
  }
  ADD_FAILURE() << "no line of " << name << " " << wire;
  return 0;
}

CommBench small_comm(int ranks, int nodes) {
  CommBench options;
  options.ranks = ranks;
  options.nodes = nodes;
  options.bytes = {256 << 10};
  options.transport = "local";
  options.quantized = true;
  options.seconds = 0;
  return options;
}

TEST(CommBench, PrintsALineForEachCollective) {
  Lines lines;
  CommBench options = small_comm(2, 1);
  options.quantized = false;
  bench_comm(options, into(lines));
  for (const char* name : {"all-gather", "reduce-scatter", "all-reduce", "all-to-all"}) {
    EXPECT_THAT(lines, Contains(AllOf(HasSubstr(name), HasSubstr("256 KiB")))) << name;
  }
}

TEST(CommBench, QuantizedTellsRatesOfCodecsAndErrorsOfCollectives) {
  Lines lines;
  bench_comm(small_comm(4, 2), into(lines));
  EXPECT_THAT(lines, Contains(AllOf(HasSubstr("requantize 4"), HasSubstr("8/2048"))));
  EXPECT_EQ(last_number(lines, "all-gather", "16bit"), 0);
  EXPECT_NEAR(last_number(lines, "all-gather", "int8"), .0083, .0003);
  // Rounded to 8 bits of mantissa on the way.
  EXPECT_LT(last_number(lines, "reduce-scatter", "16bit, 16bit"), .004);
  const double both8 = last_number(lines, "reduce-scatter", "int8, int8");
  const double inter4 = last_number(lines, "reduce-scatter", "int8, int4");
  const double both4 = last_number(lines, "reduce-scatter", "int4, int4");
  EXPECT_LT(both8, .012);
  EXPECT_GT(both8, .003);
  EXPECT_GT(inter4, .05);
  EXPECT_LT(inter4, .12);
  EXPECT_GT(both4, 1.1 * inter4);
  EXPECT_LT(both4, .2);
}

TEST(CommBench, QuantizedCountsWhatIsSent) {
  Lines lines;
  CommBench options = small_comm(4, 2);
  options.algorithm = "two-level";  // the cheapest one depends on the machine
  bench_comm(options, into(lines));
  // Half of a buffer crosses: 128 KiB, and 64 KiB in 8 bits with a scale for each 2048.
  EXPECT_THAT(lines, Contains(AllOf(HasSubstr("all-gather"), HasSubstr(" 16bit "),
                                    HasSubstr(" 128 KiB "))));
  EXPECT_THAT(lines, Contains(AllOf(HasSubstr("all-gather"), HasSubstr(" int8 "),
                                    HasSubstr(" 64.1 KiB "))));
  EXPECT_THAT(lines, Contains(AllOf(HasSubstr("reduce-scatter"), HasSubstr(" int8, int4 "),
                                    HasSubstr(" 34.0 KiB "))));
}

TEST(CommBench, QuantizedOnOneNodeHasOneWire) {
  Lines lines;
  bench_comm(small_comm(2, 1), into(lines));
  EXPECT_GT(last_number(lines, "reduce-scatter", "int4"), .05);
  EXPECT_THAT(lines, Not(Contains(HasSubstr("int8, int4"))));
}

TEST(CommBench, RefusesNodesThatDoNotDivideTheRanks) {
  EXPECT_THROW(bench_comm(small_comm(3, 2), [](const std::string&) {}), Error);
}

}  // namespace
}  // namespace zpp
