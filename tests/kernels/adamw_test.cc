#include "kernels/adamw.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/kernels/op_case.h"

namespace zpp::kernels {
namespace {

constexpr double kLr = 3e-3, kBeta1 = 0.9, kBeta2 = 0.95, kEps = 1e-8, kDecay = 0.1;

/// Step number 3 of n parameters, gradients halved by the guard.
OpCase adamw_case(int64_t n, bool skip) {
  OpCase op;
  op.name = fmt::format("adamw of {} skip {}", n, skip);
  op.inputs = {{.name = "grad", .shape = {n}, .role = Role::kAccum},
               {.name = "guard",
                .shape = {kGuardSize},
                .role = Role::kF64,
                .fill = listed({2.0, skip ? 0.0 : 0.5, skip ? 1.0 : 0.0, 3.0})}};
  const Fill positive = [](uint64_t seed, int64_t i) { return std::abs(normal()(seed, i)); };
  op.outputs = {{.name = "master", .shape = {n}, .role = Role::kAccum, .fill = normal()},
                {.name = "m", .shape = {n}, .role = Role::kAccum, .fill = normal(0.1f)},
                {.name = "v", .shape = {n}, .role = Role::kAccum, .fill = positive},
                {.name = "weights", .shape = {n}, .fill = constant(0.0)}};
  // Only bf16 training has weights beside the master.
  op.run = [](Stream& stream, const Views& in, const Views& out) {
    const bool separate = out[3].dtype == DType::kBF16;
    adamw(stream, {.master = out[0],
                   .m = out[1],
                   .v = out[2],
                   .grad = in[0],
                   .weights = separate ? out[3] : View{},
                   .guard = in[1],
                   .lr = kLr,
                   .beta1 = kBeta1,
                   .beta2 = kBeta2,
                   .eps = kEps,
                   .weight_decay = kDecay});
  };
  op.reference = [=](const std::vector<Values>& in, std::vector<Values>& out) {
    if (skip) return;
    const double c1 = 1 - std::pow(kBeta1, 3), c2 = 1 - std::pow(kBeta2, 3);
    for (size_t i = 0; i < out[0].size(); ++i) {
      const double g = 0.5 * in[0][i];
      double &w = out[0][i], &m = out[1][i], &v = out[2][i];
      m = kBeta1 * m + (1 - kBeta1) * g;
      v = kBeta2 * v + (1 - kBeta2) * g * g;
      w -= kLr * (m / c1 / (std::sqrt(v / c2) + kEps) + kDecay * w);
    }
  };
  op.dtypes = {DType::kF32, DType::kF64};
  return op;
}

TEST(AdamW, AgreesWithTheReference) {
  for (int64_t n : {0, 1, 77, 40003}) run_op_case(adamw_case(n, false));
}

TEST(AdamW, RoundsTheMasterIntoTheWeights) {
  for (int64_t n : {0, 5, 40003}) {
    OpCase op = adamw_case(n, false);
    op.name += " with weights";
    op.dtypes = {DType::kBF16};
    op.outputs[3].fill = {};
    op.reference = [inner = op.reference](const std::vector<Values>& in, std::vector<Values>& out) {
      inner(in, out);
      out[3] = out[0];
    };
    run_op_case(op);
  }
}

OpCase sgd_case(int64_t n, bool skip) {
  OpCase op = adamw_case(n, skip);
  op.name = fmt::format("sgd of {} skip {}", n, skip);
  op.outputs = {op.outputs[0], op.outputs[3]};
  op.run = [](Stream& stream, const Views& in, const Views& out) {
    sgd(stream, {.master = out[0],
                 .grad = in[0],
                 .weights = out[1].dtype == DType::kBF16 ? out[1] : View{},
                 .guard = in[1],
                 .lr = kLr,
                 .weight_decay = kDecay});
  };
  op.reference = [=](const std::vector<Values>& in, std::vector<Values>& out) {
    for (size_t i = 0; i < out[0].size() && !skip; ++i) {
      out[0][i] -= kLr * (0.5 * in[0][i] + kDecay * out[0][i]);
    }
  };
  return op;
}

TEST(Sgd, AgreesWithTheReference) {
  for (int64_t n : {0, 1, 77, 40003}) run_op_case(sgd_case(n, false));
  run_op_case(sgd_case(1000, true));
}

TEST(Sgd, RoundsTheMasterIntoTheWeights) {
  OpCase op = sgd_case(40003, false);
  op.dtypes = {DType::kBF16};
  op.outputs[1].fill = {};
  op.reference = [inner = op.reference](const std::vector<Values>& in, std::vector<Values>& out) {
    inner(in, out);
    out[1] = out[0];
  };
  run_op_case(op);
}

TEST(AdamW, ChangesNothingOnASkippedStep) {
  OpCase op = adamw_case(1000, true);
  op.dtypes = {DType::kF32, DType::kBF16, DType::kF64};
  op.inputs[0].fill = constant(std::numeric_limits<double>::quiet_NaN());
  run_op_case(op);
}

class Guard : public testing::Test {
 protected:
  std::vector<double> after(double squares, float loss, double max_norm) {
    copy_from_host(stream_, std::vector<double>{squares}, squares_.view());
    copy_from_host(stream_, std::vector<float>{loss}, loss_.view());
    step_guard(stream_, squares_.view(), loss_.view(), max_norm, guard_.view());
    return copy_to_host<double>(stream_, guard_.view());
  }
  void SetUp() override {
    copy_from_host(stream_, std::vector<double>(kGuardSize, 0.0), guard_.view());
  }
  Runtime runtime_{{.device = {}, .threads = 2}};
  Stream& stream_ = runtime_.compute();
  Tensor squares_ = runtime_.tensor({1}, DType::kF64);
  Tensor loss_ = runtime_.tensor({1}, DType::kF32);
  Tensor guard_ = runtime_.tensor({kGuardSize}, DType::kF64);
};

TEST_F(Guard, ClipsOnlyAboveTheNormAskedFor) {
  EXPECT_EQ(after(16.0, 1.0f, 2.0), (std::vector<double>{4.0, 0.5, 0.0, 1.0}));
  EXPECT_EQ(after(1.0, 1.0f, 2.0), (std::vector<double>{1.0, 1.0, 0.0, 2.0}));
  EXPECT_EQ(after(16.0, 1.0f, 0.0), (std::vector<double>{4.0, 1.0, 0.0, 3.0}));
  EXPECT_EQ(after(0.0, 1.0f, 2.0), (std::vector<double>{0.0, 1.0, 0.0, 4.0}));
}

TEST_F(Guard, SkipsAndDoesNotCountNonFiniteSteps) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(after(4.0, 1.0f, 1.0)[kGuardApplied], 1.0);
  for (auto [squares, loss] :
       {std::pair<double, float>{nan, 1.0f}, {HUGE_VAL, 1.0f}, {4.0, NAN}, {4.0, HUGE_VALF}}) {
    const std::vector<double> got = after(squares, loss, 1.0);
    EXPECT_EQ(got[kGuardSkip], 1.0) << squares << " " << loss;
    EXPECT_EQ(got[kGuardScale], 0.0) << squares << " " << loss;
    EXPECT_EQ(got[kGuardApplied], 1.0) << squares << " " << loss;
  }
  EXPECT_EQ(after(4.0, 1.0f, 1.0)[kGuardApplied], 2.0);
}

TEST_F(Guard, MustHaveRunBeforeAdamW) {
  const Tensor p = runtime_.tensor({4}, DType::kF32);
  adamw(stream_, {p.view(), p.view(), p.view(), p.view(), {}, guard_.view(), 1, 0.9, 0.9, 1, 0});
  EXPECT_NE(complaint_of([&] { stream_.synchronize(); }).find("step_guard comes first"),
            std::string::npos);
}

TEST_F(Guard, AndAdamWNameBadArguments) {
  const Tensor p = runtime_.tensor({4}, DType::kF32), q = runtime_.tensor({5}, DType::kF32);
  const Tensor wide = runtime_.tensor({4}, DType::kF64);
  const auto complaint = [&](const View& master, const View& m, const View& weights, double beta1) {
    return complaint_of([&] {
      adamw(stream_, {master, m, m, m, weights, guard_.view(), 1, beta1, 0.9, 1, 0});
    });
  };
  EXPECT_EQ(complaint(p.view(), q.view(), {}, 0.9), "adamw: grad is (5) but should be (4)");
  EXPECT_EQ(complaint(p.view(), p.view(), p.view(), 0.9),
            "adamw: weights is f32 but should be bf16");
  EXPECT_EQ(complaint(wide.view(), wide.view(), p.view(), 0.9),
            "adamw: master is f64, which has no separate weights");
  EXPECT_EQ(complaint(p.view(), p.view(), {}, 1.0),
            "adamw: beta1 and beta2 are 1 and 0.9 but should be at least 0 and below 1");
  EXPECT_EQ(
      complaint_of([&] { step_guard(stream_, squares_.view(), loss_.view(), 1.0, p.view()); }),
      "step_guard: guard is f32 but should be f64");
}

}  // namespace
}  // namespace zpp::kernels
