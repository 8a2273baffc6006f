#include "kernels/cross_entropy.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/kernels/op_case.h"

namespace zpp::kernels {
namespace {

struct Size {
  int64_t rows, vocabulary;
};
// Below, at and above the piece that the sum is taken in.
constexpr Size kSizes[] = {{0, 5}, {1, 1}, {7, 13}, {4, 2048}, {9, 5001}};
constexpr double kLossScale = 0.25, kGradScale = 0.125;

struct RowResult {
  double max = -std::numeric_limits<double>::infinity(), sum = 0;
};
RowResult softmax_row(const double* x, int64_t n) {
  RowResult r;
  for (int64_t i = 0; i < n; ++i) r.max = std::max(r.max, x[i]);
  for (int64_t i = 0; i < n; ++i) r.sum += std::exp(x[i] - r.max);
  return r;
}

void reference(Size s, bool with_dy, const std::vector<Values>& in, std::vector<Values>& out) {
  double sum = 0;
  const double scale = kGradScale * (with_dy ? in[2][0] : 1.0);
  for (int64_t row = 0; row < s.rows; ++row) {
    const double* x = in[0].data() + row * s.vocabulary;
    const auto target = static_cast<int64_t>(in[1][static_cast<size_t>(row)]);
    const RowResult r = softmax_row(x, s.vocabulary);
    const double loss = target < 0 ? 0 : r.max + std::log(r.sum) - x[target];
    sum += loss;
    for (int64_t i = 0; i < s.vocabulary; ++i) {
      const double softmax = std::exp(x[i] - r.max) / r.sum;
      out[1][static_cast<size_t>(row * s.vocabulary + i)] =
          target < 0 ? 0 : scale * (softmax - (i == target ? 1.0 : 0.0));
    }
    out[2][static_cast<size_t>(row)] = loss;
  }
  out[0][0] += kLossScale * sum;
}

/// Ignored rows among the others; loss accumulates on what is there.
OpCase case_of(Size s, bool with_dy) {
  OpCase op;
  op.name = fmt::format("cross_entropy {}x{} dy {}", s.rows, s.vocabulary, with_dy);
  op.inputs = {{.name = "logits",
                .shape = {s.rows, s.vocabulary},
                .role = Role::kAccum,
                .fill = normal(3.0f)},
               {.name = "targets",
                .shape = {s.rows},
                .role = Role::kI32,
                .fill = integers(-1, s.vocabulary)},
               {.name = "dy", .shape = {1}, .role = Role::kAccum, .fill = constant(0.5)}};
  const auto terms = static_cast<double>(s.vocabulary);
  op.outputs = {
      {.name = "loss", .shape = {1}, .role = Role::kAccum, .fill = constant(2.0), .terms = terms},
      {.name = "dlogits", .shape = {s.rows, s.vocabulary}, .terms = terms},
      {.name = "row_loss", .shape = {s.rows}, .role = Role::kAccum, .terms = terms}};
  op.run = [=](Stream& stream, const Views& in, const Views& out) {
    cross_entropy(stream, {.logits = in[0],
                           .targets = in[1],
                           .loss = out[0],
                           .dy = with_dy ? in[2] : View{},
                           .dlogits = out[1],
                           .row_loss = out[2],
                           .loss_scale = kLossScale,
                           .grad_scale = kGradScale});
  };
  op.reference = [=](const std::vector<Values>& in, std::vector<Values>& out) {
    reference(s, with_dy, in, out);
  };
  return op;
}

TEST(CrossEntropy, AgreesWithTheReference) {
  for (Size s : kSizes) {
    for (bool with_dy : {true, false}) run_op_case(case_of(s, with_dy));
  }
}

TEST(CrossEntropy, TurnsLogitsIntoTheirGradientInPlace) {
  const Size s{6, 301};
  OpCase op = case_of(s, false);
  op.name += " in place";
  op.dtypes = {DType::kF32, DType::kF64};
  op.outputs[1].fill = normal(3.0f);
  op.run = [](Stream& stream, const Views& in, const Views& out) {
    cross_entropy(stream, {out[1], in[1], out[0], {}, out[1], out[2], kLossScale, kGradScale});
  };
  op.reference = [=](const std::vector<Values>& in, std::vector<Values>& out) {
    std::vector<Values> inputs = in;
    inputs[0] = out[1];
    reference(s, false, inputs, out);
  };
  run_op_case(op);
}

TEST(CrossEntropy, StaysFiniteOnHugeLogits) {
  OpCase op = case_of({12, 3000}, true);
  op.name += " huge logits";
  op.inputs[0].fill = [](uint64_t seed, int64_t i) {
    return normal(1.0f)(seed, i) + (i % 7 == 0 ? 1e4 : i % 5 == 0 ? -1e4 : 0.0);
  };
  run_op_case(op);
}

TEST(CrossEntropy, IgnoresRowsWithoutTarget) {
  OpCase op = case_of({5, 40}, true);
  op.name += " all ignored";
  op.inputs[1].fill = constant(-1);
  run_op_case(op);
}

TEST(CrossEntropy, WorksOnRowsApart) {
  const Size s{4, 10};
  OpCase op = case_of(s, false);
  op.name += " strided";
  // Columns [0, 10) of 16; the canary that each row ends with is an input nobody may read.
  op.inputs[0].shape = {s.rows, 16};
  op.inputs[0].fill = [](uint64_t seed, int64_t i) {
    return i % 16 < 10 ? normal(1.0f)(seed, i) : 1e30;
  };
  op.run = [=](Stream& stream, const Views& in, const Views& out) {
    cross_entropy(stream, {in[0].slice(1, 0, s.vocabulary),
                           in[1],
                           out[0],
                           {},
                           out[1],
                           out[2],
                           kLossScale,
                           kGradScale});
  };
  op.reference = [=](const std::vector<Values>& in, std::vector<Values>& out) {
    std::vector<Values> inputs = in;
    inputs[0].clear();
    for (size_t i = 0; i < in[0].size(); ++i) {
      if (i % 16 < 10) inputs[0].push_back(in[0][i]);
    }
    reference(s, false, inputs, out);
  };
  run_op_case(op);
}

TEST(CrossEntropy, WithoutGradientWritesTheLossOnly) {
  OpCase op = case_of({7, 100}, false);
  op.name += " loss only";
  op.outputs[1].scratch = true;
  op.run = [](Stream& stream, const Views& in, const Views& out) {
    cross_entropy(stream, {in[0], in[1], out[0], {}, {}, out[2], kLossScale, kGradScale});
  };
  run_op_case(op);
}

TEST(CrossEntropy, BackwardIsTheGradientOfTheLoss) {
  GradientCase grad;
  grad.forward = case_of({5, 9}, false);
  grad.forward.outputs.resize(1);
  grad.forward.outputs[0].fill = constant(0.0);
  grad.forward.outputs.push_back({.name = "row_loss", .shape = {5}});
  grad.forward.run = [](Stream& stream, const Views& in, const Views& out) {
    cross_entropy(stream, {in[0], in[1], out[0], {}, {}, out[1], 0.5, 0.5});
  };
  grad.wrt = {0};
  grad.through = {0};
  grad.backward = [](Stream& stream, const Views& in, const Views& out, const Views& dout,
                     const Views& din, const std::function<View(int64_t)>&) {
    cross_entropy(stream, {in[0], in[1], out[0], dout[0], din[0], out[1], 0.5, 0.5});
  };
  check_gradient(grad);
}

class CrossEntropyValues : public testing::Test {
 protected:
  /// Loss of one row of logits with target 0.
  float loss_of(const std::vector<float>& logits, std::vector<int32_t> targets = {0}) {
    const auto n = static_cast<int64_t>(logits.size());
    const Tensor x = runtime_.tensor({1, n}, DType::kF32);
    const Tensor t = runtime_.tensor({1}, DType::kI32);
    const Tensor loss = runtime_.tensor({1}, DType::kF32);
    const Tensor rows = runtime_.tensor({1}, DType::kF32);
    copy_from_host(stream_, logits, x.view());
    copy_from_host(stream_, targets, t.view());
    copy_from_host(stream_, std::vector<float>{0}, loss.view());
    cross_entropy(stream_, {x.view(), t.view(), loss.view(), {}, x.view(), rows.view(), 1.0, 1.0});
    return copy_to_host<float>(stream_, loss.view())[0];
  }
  Runtime runtime_{{.device = {}, .threads = 2}};
  Stream& stream_ = runtime_.compute();
};

TEST_F(CrossEntropyValues, NaNAndInfInTheLogitsReachTheLoss) {
  std::vector<float> logits(3000, 1.0f);
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), HUGE_VALF}) {
    for (size_t at : {size_t{0}, size_t{1500}, size_t{2999}}) {
      std::vector<float> broken = logits;
      broken[at] = bad;
      EXPECT_FALSE(std::isfinite(loss_of(broken))) << bad << " at " << at;
    }
  }
}

TEST_F(CrossEntropyValues, MinusInfiniteLogitsHaveNoProbability) {
  std::vector<float> logits(6000, -HUGE_VALF);
  logits[0] = logits[5999] = 2.0f;
  EXPECT_NEAR(loss_of(logits), std::log(2.0), 1e-6);
  // A whole leading piece of them.
  std::reverse(logits.begin(), logits.end() - 1);
  EXPECT_NEAR(loss_of(logits, {5998}), std::log(2.0), 1e-6);
}

TEST_F(CrossEntropyValues, ATargetOutsideTheVocabularyIsNamed) {
  EXPECT_NE(complaint_of([&] {
              loss_of({1, 2, 3}, {3});
            }).find("the target of row 0 is 3 but should be 0 to 2, or -1"),
            std::string::npos);
}

TEST_F(CrossEntropyValues, ATargetBelowMinusOneIsNamed) {
  EXPECT_NE(complaint_of([&] {
              loss_of({1, 2, 3}, {-2});
            }).find("the target of row 0 is -2"),
            std::string::npos);
}

TEST_F(CrossEntropyValues, BadArgumentsAreNamed) {
  const Tensor x = runtime_.tensor({2, 3}, DType::kF32), n = runtime_.tensor({2}, DType::kF32);
  const Tensor t = runtime_.tensor({2}, DType::kI32), half = runtime_.tensor({2, 3}, DType::kBF16);
  const auto complaint = [&](const View& logits, const View& loss) {
    return complaint_of([&] {
      cross_entropy(stream_, {logits, t.view(), loss, {}, {}, n.view(), 1.0, 1.0});
    });
  };
  EXPECT_EQ(complaint(half.view(), n.view()),
            "cross_entropy: logits is bf16 but should be f32 or f64");
  EXPECT_EQ(complaint(x.view(), n.view()), "cross_entropy: loss is (2) but should be one number");
  EXPECT_EQ(
      complaint(x.view().transpose(0, 1), n.view()),
      "cross_entropy: logits is (3, 2) with strides (1, 3) but should be (rows, V) with dense "
      "rows");
}

}  // namespace
}  // namespace zpp::kernels
