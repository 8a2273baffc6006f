// The frame must catch what it is there to catch.
#include "tests/kernels/op_case.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <atomic>

namespace zpp::kernels {
namespace {

/// Doubles ten numbers, in f32, with a fault when `fault` says so.
OpCase doubling(const std::function<void(CpuStream&, const float* x, float* y)>& fault) {
  OpCase op;
  op.name = "doubling";
  op.dtypes = {DType::kF32};
  op.inputs = {{.name = "x", .shape = {10}}};
  op.outputs = {{.name = "y", .shape = {10}}};
  op.run = [=](Stream& stream, const Views& in, const Views& out) {
    stream.host("doubling", [=, &stream] {
      const float* x = in[0].as<float>();
      float* y = out[0].as<float>();
      for (int i = 0; i < 10; ++i) y[i] = 2 * x[i];
      fault(dynamic_cast<CpuStream&>(stream), x, y);
    });
  };
  op.reference = [](const std::vector<Values>& in, std::vector<Values>& out) {
    for (size_t i = 0; i < 10; ++i) out[0][i] = 2 * in[0][i];
  };
  return op;
}

/// What run_op_case() reports, all failures in one text.
std::string failures_of(const OpCase& op) {
  testing::TestPartResultArray results;
  {
    testing::ScopedFakeTestPartResultReporter reporter(
        testing::ScopedFakeTestPartResultReporter::INTERCEPT_ALL_THREADS, &results);
    run_op_case(op);
  }
  std::string text;
  for (int i = 0; i < results.size(); ++i) text += results.GetTestPartResult(i).message();
  return text;
}

testing::AssertionResult reports(const OpCase& op, const std::string& wanted) {
  const std::string text = failures_of(op);
  if (text.find(wanted) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "'" << wanted << "' is not in: " << text;
}

TEST(OpCase, AcceptsARightKernel) {
  EXPECT_EQ(failures_of(doubling([](CpuStream&, const float*, float*) {})), "");
}

TEST(OpCase, ReportsAWrongElement) {
  EXPECT_TRUE(reports(doubling([](CpuStream&, const float*, float* y) { y[7] *= 1.0001f; }),
                      "first: element 7 is"));
}

TEST(OpCase, ReportsAnElementThatWasNotWritten) {
  OpCase op = doubling([](CpuStream&, const float*, float*) {});
  op.run = [](Stream&, const Views&, const Views&) {};
  EXPECT_TRUE(reports(op, "nan but should be"));
}

TEST(OpCase, ReportsAWriteBehindTheOutput) {
  EXPECT_TRUE(reports(doubling([](CpuStream&, const float*, float* y) { y[10] = 0; }),
                      "wrote outside of y(10)"));
}

TEST(OpCase, ReportsAChangedInput) {
  EXPECT_TRUE(
      reports(doubling([](CpuStream&, const float* x, float*) { const_cast<float*>(x)[3] = 0; }),
              "changed input x"));
}

TEST(OpCase, ReportsBitsThatDependOnTheThreads) {
  EXPECT_TRUE(reports(doubling([](CpuStream& stream, const float*, float* y) {
                        if (stream.workers().threads() == 2) y[1] *= 1.0000001f;
                      }),
                      "y depends on the number of threads"));
}

TEST(OpCase, ReportsBitsThatDependOnTheRun) {
  auto runs = std::make_shared<std::atomic<int>>(0);
  EXPECT_TRUE(reports(doubling([runs](CpuStream&, const float*, float* y) {
                        if (runs->fetch_add(1) % 2 == 1) y[1] *= 1.0000001f;
                      }),
                      "y differs between runs"));
}

TEST(OpCase, ReportsAWrongGradient) {
  GradientCase grad;
  grad.forward.name = "square";
  grad.forward.inputs = {{.name = "x", .shape = {5}}};
  grad.forward.outputs = {{.name = "y", .shape = {5}}};
  grad.forward.run = [](Stream& stream, const Views& in, const Views& out) {
    stream.host("square", [=] {
      for (int i = 0; i < 5; ++i) {
        out[0].as<double>()[i] = in[0].as<double>()[i] * in[0].as<double>()[i];
      }
    });
  };
  grad.wrt = {0};
  grad.through = {0};
  double factor = 2.0;
  grad.backward = [&](Stream& stream, const Views& in, const Views&, const Views& dout,
                      const Views& din, const std::function<View(int64_t)>&) {
    stream.host("square backward", [=] {
      for (int i = 0; i < 5; ++i) {
        din[0].as<double>()[i] = factor * in[0].as<double>()[i] * dout[0].as<double>()[i];
      }
    });
  };
  check_gradient(grad);
  factor = 2.001;
  testing::TestPartResultArray results;
  {
    testing::ScopedFakeTestPartResultReporter reporter(
        testing::ScopedFakeTestPartResultReporter::INTERCEPT_ALL_THREADS, &results);
    check_gradient(grad);
  }
  EXPECT_EQ(results.size(), 5);
}

}  // namespace
}  // namespace zpp::kernels
