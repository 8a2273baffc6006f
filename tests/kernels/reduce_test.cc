#include "kernels/reduce.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/elementwise.h"
#include "tests/kernels/op_case.h"

namespace zpp::kernels {
namespace {

OpCase sum_squares_case(int64_t n, bool accumulate) {
  OpCase op;
  op.name = fmt::format("sum_squares of {} accumulate {}", n, accumulate);
  op.inputs = {{.name = "x", .shape = {n}}};
  op.outputs = {{.name = "out",
                 .shape = {1},
                 .role = Role::kF64,
                 .fill = accumulate ? constant(3.0) : Fill{},
                 .terms = static_cast<double>(n)}};
  op.run = [=](Stream& s, const Views& in, const Views& out) {
    sum_squares(s, in[0], {out[0], accumulate});
  };
  op.reference = [=](const std::vector<Values>& in, std::vector<Values>& out) {
    if (!accumulate) out[0][0] = 0;
    for (double x : in[0]) out[0][0] += x * x;
  };
  return op;
}

OpCase sum_rows_case(int64_t rows, int64_t cols, bool accumulate) {
  OpCase op;
  op.name = fmt::format("sum_rows {}x{} accumulate {}", rows, cols, accumulate);
  // The last two columns belong to somebody else.
  op.inputs = {{.name = "x", .shape = {rows, cols + 2}}};
  op.outputs = {{.name = "out",
                 .shape = {cols},
                 .role = Role::kAccum,
                 .fill = accumulate ? normal() : Fill{},
                 .terms = static_cast<double>(rows)}};
  op.run = [=](Stream& s, const Views& in, const Views& out) {
    sum_rows(s, in[0].slice(1, 0, cols), {out[0], accumulate});
  };
  op.reference = [=](const std::vector<Values>& in, std::vector<Values>& out) {
    for (int64_t c = 0; c < cols; ++c) {
      double sum = accumulate ? out[0][static_cast<size_t>(c)] : 0.0;
      for (int64_t r = 0; r < rows; ++r) sum += in[0][static_cast<size_t>(r * (cols + 2) + c)];
      out[0][static_cast<size_t>(c)] = sum;
    }
  };
  return op;
}

TEST(SumSquares, AgreesWithTheReference) {
  // Inside a block, across blocks, and nothing.
  for (int64_t n : {0, 1, 3, 4095, 4097, 70001}) {
    for (bool accumulate : {false, true}) run_op_case(sum_squares_case(n, accumulate));
  }
}

TEST(SumSquares, BlocksGrowWithTheCount) {
  OpCase op = sum_squares_case(256 * 4096 + 777, false);
  op.dtypes = {DType::kF32};
  run_op_case(op);
}

TEST(SumSquares, DoesNotOverflowInSinglePrecision) {
  OpCase op = sum_squares_case(100, false);
  op.name += " of large numbers";
  op.inputs[0].fill = constant(1e30);
  run_op_case(op);
}

TEST(SumRows, AgreesWithTheReference) {
  for (auto [rows, cols] :
       {std::pair<int64_t, int64_t>{0, 5}, {3, 0}, {1, 1}, {7, 33}, {66, 2049}}) {
    for (bool accumulate : {false, true}) run_op_case(sum_rows_case(rows, cols, accumulate));
  }
}

class NonFinite : public testing::TestWithParam<DType> {
 protected:
  Tensor ones(int64_t n) {
    const Tensor x = runtime_.tensor({n}, GetParam());
    fill(stream_, x.view(), 1.0);
    return x;
  }
  void break_at(const Tensor& x, int64_t at, double value) {
    fill(stream_, x.view().slice(0, at, at + 1), value);
  }
  int32_t found(const Tensor& x) {
    const Tensor out = runtime_.tensor({1}, DType::kI32);
    any_nonfinite(stream_, x.view(), out.view());
    return copy_to_host<int32_t>(stream_, out.view())[0];
  }
  double squares(const Tensor& x) {
    const Tensor out = runtime_.tensor({1}, DType::kF64);
    sum_squares(stream_, x.view(), {out.view()});
    return copy_to_host<double>(stream_, out.view())[0];
  }
  Runtime runtime_{{.device = {}, .threads = 3}};
  Stream& stream_ = runtime_.compute();
};

TEST_P(NonFinite, IsFoundWhereverItStands) {
  constexpr int64_t kCount = 40001;
  EXPECT_EQ(found(ones(0)), 0);
  EXPECT_EQ(found(ones(kCount)), 0);
  for (double bad : {std::numeric_limits<double>::quiet_NaN(), HUGE_VAL, -HUGE_VAL}) {
    for (int64_t at : {int64_t{0}, int64_t{17}, kCount / 2, kCount - 1}) {
      const Tensor x = ones(kCount);
      break_at(x, at, bad);
      EXPECT_EQ(found(x), 1) << bad << " at " << at;
      EXPECT_FALSE(std::isfinite(squares(x))) << bad << " at " << at;
    }
  }
}

TEST_P(NonFinite, IsNotSeenInTheLargestFiniteNumbers) {
  const Tensor x = ones(100);
  break_at(x, 50, 3.3e38);
  break_at(x, 51, -3.3e38);
  EXPECT_EQ(found(x), 0);
}

INSTANTIATE_TEST_SUITE_P(DTypes, NonFinite, testing::Values(DType::kF32, DType::kBF16, DType::kF64),
                         [](const auto& test) { return std::string(to_string(test.param)); });

TEST(Reduce, BadArgumentsAreNamed) {
  Runtime runtime{{.device = {}, .threads = 1}};
  Stream& stream = runtime.compute();
  const Tensor x = runtime.tensor({2, 6}, DType::kF32), wide = runtime.tensor({1}, DType::kF64);
  EXPECT_EQ(complaint_of([&] { sum_squares(stream, x.view(), {x.view()}); }),
            "sum_squares: out is f32 but should be f64");
  EXPECT_EQ(complaint_of([&] { sum_squares(stream, {}, {wide.view()}); }),
            "sum_squares: x is absent");
  EXPECT_EQ(complaint_of([&] { sum_rows(stream, x.view(), {wide.view()}); }),
            "sum_rows: out is (1) but should be (6)");
  EXPECT_EQ(complaint_of([&] { any_nonfinite(stream, x.view(), wide.view()); }),
            "any_nonfinite: out is f64 but should be i32");
}

}  // namespace
}  // namespace zpp::kernels
