#include "kernels/norm.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/op_case.h"

namespace zpp::kernels {
namespace {

constexpr float kEps = 1e-5f;

struct Size {
  int64_t rows, cols;
};
// One block of rows and several, whole vectors and odd tails, nothing at all.
constexpr Size kSizes[] = {{0, 8}, {1, 1}, {3, 7}, {5, 64}, {37, 129}, {70, 768}};

struct Moments {
  double mean = 0, rstd = 0;
};

Moments moments(const Values& x, int64_t row, int64_t cols, bool centre, double eps) {
  Moments m;
  const double* at = x.data() + row * cols;
  for (int64_t i = 0; centre && i < cols; ++i) m.mean += at[i] / static_cast<double>(cols);
  double squares = 0;
  for (int64_t i = 0; i < cols; ++i) squares += (at[i] - m.mean) * (at[i] - m.mean);
  m.rstd = 1.0 / std::sqrt(squares / static_cast<double>(cols) + eps);
  return m;
}

OpCase layer_norm_case(Size s, bool with_beta) {
  OpCase op;
  op.name = fmt::format("layer_norm {}x{} beta {}", s.rows, s.cols, with_beta);
  op.inputs = {{.name = "x", .shape = {s.rows, s.cols}, .fill = normal(2.0f, 3.0f)},
               {.name = "gamma", .shape = {s.cols}},
               {.name = "beta", .shape = {s.cols}}};
  const auto terms = static_cast<double>(s.cols);
  op.outputs = {{.name = "y", .shape = {s.rows, s.cols}, .terms = terms},
                {.name = "mean", .shape = {s.rows}, .role = Role::kAccum, .terms = terms},
                {.name = "rstd", .shape = {s.rows}, .role = Role::kAccum, .terms = terms}};
  op.run = [=](Stream& stream, const Views& in, const Views& out) {
    layer_norm(stream, {.x = in[0],
                        .gamma = in[1],
                        .beta = with_beta ? in[2] : View{},
                        .y = out[0],
                        .mean = out[1],
                        .rstd = out[2],
                        .eps = kEps});
  };
  op.reference = [=](const std::vector<Values>& in, std::vector<Values>& out) {
    for (int64_t row = 0; row < s.rows; ++row) {
      const Moments m = moments(in[0], row, s.cols, true, double{kEps});
      for (int64_t i = 0; i < s.cols; ++i) {
        const auto at = static_cast<size_t>(row * s.cols + i), c = static_cast<size_t>(i);
        out[0][at] = (in[0][at] - m.mean) * m.rstd * in[1][c] + (with_beta ? in[2][c] : 0.0);
      }
      out[1][static_cast<size_t>(row)] = m.mean;
      out[2][static_cast<size_t>(row)] = m.rstd;
    }
  };
  return op;
}

OpCase rms_norm_case(Size s) {
  OpCase op;
  op.name = fmt::format("rms_norm {}x{}", s.rows, s.cols);
  op.inputs = {{.name = "x", .shape = {s.rows, s.cols}, .fill = normal(2.0f, 1.0f)},
               {.name = "gamma", .shape = {s.cols}}};
  const auto terms = static_cast<double>(s.cols);
  op.outputs = {{.name = "y", .shape = {s.rows, s.cols}, .terms = terms},
                {.name = "rstd", .shape = {s.rows}, .role = Role::kAccum, .terms = terms}};
  op.run = [](Stream& stream, const Views& in, const Views& out) {
    rms_norm(stream, {.x = in[0], .gamma = in[1], .y = out[0], .rstd = out[1], .eps = kEps});
  };
  op.reference = [=](const std::vector<Values>& in, std::vector<Values>& out) {
    for (int64_t row = 0; row < s.rows; ++row) {
      const Moments m = moments(in[0], row, s.cols, false, double{kEps});
      for (int64_t i = 0; i < s.cols; ++i) {
        const auto at = static_cast<size_t>(row * s.cols + i);
        out[0][at] = in[0][at] * m.rstd * in[1][static_cast<size_t>(i)];
      }
      out[1][static_cast<size_t>(row)] = m.rstd;
    }
  };
  return op;
}

/// Both backward passes: inputs dy, x, gamma, mean (zeros for RMSNorm), rstd; outputs dx, dgamma,
/// dbeta, scratch.
void backward_reference(Size s, bool centre, bool accumulate, const std::vector<Values>& in,
                        std::vector<Values>& out) {
  if (!accumulate) {
    for (Values& values : out) std::fill(values.begin(), values.end(), 0.0);
  }
  const auto n = static_cast<double>(s.cols);
  for (int64_t row = 0; row < s.rows; ++row) {
    const double mean = centre ? in[3][static_cast<size_t>(row)] : 0.0;
    const double rstd = in[4][static_cast<size_t>(row)];
    double g_sum = 0, gz_sum = 0;
    const auto each = [&](auto&& fn) {
      for (int64_t i = 0; i < s.cols; ++i) {
        const auto at = static_cast<size_t>(row * s.cols + i), c = static_cast<size_t>(i);
        fn(at, c, in[0][at] * in[2][c], (in[1][at] - mean) * rstd);
      }
    };
    each([&](size_t, size_t, double g, double z) {
      g_sum += centre ? g : 0.0;
      gz_sum += g * z;
    });
    each([&](size_t at, size_t c, double g, double z) {
      out[0][at] += rstd * (g - g_sum / n - z * gz_sum / n);
      out[1][c] += in[0][at] * z;
      if (centre) out[2][c] += in[0][at];
    });
  }
}

OpCase backward_case(Size s, bool centre, bool accumulate) {
  OpCase op;
  op.name = fmt::format("{}_norm_backward {}x{} accumulate {}", centre ? "layer" : "rms", s.rows,
                        s.cols, accumulate);
  const Shape rows{s.rows}, cols{s.cols}, matrix{s.rows, s.cols};
  op.inputs = {{.name = "dy", .shape = matrix},
               {.name = "x", .shape = matrix},
               {.name = "gamma", .shape = cols},
               {.name = "mean", .shape = rows, .role = Role::kAccum, .fill = normal(0.1f)},
               {.name = "rstd", .shape = rows, .role = Role::kAccum, .fill = normal(0.1f, 1.0f)}};
  const Fill before = accumulate ? normal() : Fill{};
  const auto terms = static_cast<double>(s.rows + s.cols);
  const int64_t scratch = norm_backward_scratch(s.rows, s.cols);
  op.outputs = {
      {.name = "dx", .shape = matrix, .fill = before, .terms = terms},
      {.name = "dgamma", .shape = cols, .role = Role::kAccum, .fill = before, .terms = terms},
      {.name = "dbeta", .shape = cols, .role = Role::kAccum, .fill = before, .terms = terms},
      {.name = "scratch", .shape = {scratch}, .role = Role::kAccum, .scratch = true}};
  // RMSNorm has no beta: nothing is expected to happen to that output.
  if (!centre) op.outputs[2].fill = constant(0.0);
  op.run = [=](Stream& stream, const Views& in, const Views& out) {
    const Grad dx{out[0], accumulate}, dgamma{out[1], accumulate}, dbeta{out[2], accumulate};
    if (centre) {
      layer_norm_backward(stream, {in[0], in[1], in[2], in[3], in[4], dx, dgamma, dbeta, out[3]});
    } else {
      rms_norm_backward(stream, {in[0], in[1], in[2], in[4], dx, dgamma, out[3]});
    }
  };
  op.reference = [=](const std::vector<Values>& in, std::vector<Values>& out) {
    backward_reference(s, centre, accumulate, in, out);
  };
  return op;
}

TEST(LayerNorm, AgreesWithTheReference) {
  for (Size s : kSizes) {
    for (bool with_beta : {true, false}) run_op_case(layer_norm_case(s, with_beta));
  }
}

TEST(LayerNorm, BackwardAgreesWithTheReference) {
  for (Size s : kSizes) {
    for (bool accumulate : {false, true}) run_op_case(backward_case(s, true, accumulate));
  }
}

TEST(LayerNorm, BackwardIsTheGradientOfForward) {
  GradientCase grad;
  grad.forward = layer_norm_case({21, 10}, true);
  grad.wrt = {0, 1, 2};
  grad.through = {0};
  grad.backward = [](Stream& stream, const Views& in, const Views& out, const Views& dout,
                     const Views& din, const std::function<View(int64_t)>& scratch) {
    layer_norm_backward(stream, {.dy = dout[0],
                                 .x = in[0],
                                 .gamma = in[1],
                                 .mean = out[1],
                                 .rstd = out[2],
                                 .dx = {din[0]},
                                 .dgamma = {din[1]},
                                 .dbeta = {din[2]},
                                 .scratch = scratch(norm_backward_scratch(21, 10))});
  };
  check_gradient(grad);
}

TEST(LayerNorm, GivesBetaOnConstantRows) {
  OpCase op = layer_norm_case({4, 100}, true);
  op.name += " constant rows";
  // Far from zero: a variance by E[x^2] - E[x]^2 would be rounding noise, maybe negative.
  op.inputs[0].fill = constant(1000.0);
  op.run = [](Stream& stream, const Views& in, const Views& out) {
    layer_norm(stream, {in[0], in[1], in[2], out[0], out[1], out[2], kEps});
  };
  op.reference = [](const std::vector<Values>& in, std::vector<Values>& out) {
    for (size_t i = 0; i < out[0].size(); ++i) out[0][i] = in[2][i % 100];
    std::fill(out[1].begin(), out[1].end(), 1000.0);
    std::fill(out[2].begin(), out[2].end(), 1.0 / std::sqrt(double{kEps}));
  };
  run_op_case(op);
}

TEST(RmsNorm, AgreesWithTheReference) {
  for (Size s : kSizes) run_op_case(rms_norm_case(s));
}

TEST(RmsNorm, BackwardAgreesWithTheReference) {
  for (Size s : kSizes) {
    for (bool accumulate : {false, true}) run_op_case(backward_case(s, false, accumulate));
  }
}

TEST(RmsNorm, BackwardIsTheGradientOfForward) {
  GradientCase grad;
  grad.forward = rms_norm_case({18, 9});
  grad.wrt = {0, 1};
  grad.through = {0};
  grad.backward = [](Stream& stream, const Views& in, const Views& out, const Views& dout,
                     const Views& din, const std::function<View(int64_t)>& scratch) {
    rms_norm_backward(stream, {.dy = dout[0],
                               .x = in[0],
                               .gamma = in[1],
                               .rstd = out[1],
                               .dx = {din[0]},
                               .dgamma = {din[1]},
                               .scratch = scratch(norm_backward_scratch(18, 9))});
  };
  check_gradient(grad);
}

class NormArguments : public testing::Test {
 protected:
  Runtime runtime_{{.device = {}, .threads = 1}};
  Stream& stream_ = runtime_.compute();
  Tensor x_ = runtime_.tensor({4, 8}, DType::kF32);
  Tensor y_ = runtime_.tensor({4, 8}, DType::kF32);
  Tensor gamma_ = runtime_.tensor({8}, DType::kF32);
  Tensor rows_ = runtime_.tensor({4}, DType::kF32);
  Tensor scratch_ = runtime_.tensor({norm_backward_scratch(4, 8)}, DType::kF32);
};

TEST_F(NormArguments, OfAnotherShapeAreNamed) {
  EXPECT_EQ(complaint_of([&] {
              rms_norm(stream_, {x_.view(), rows_.view(), y_.view(), rows_.view(), kEps});
            }),
            "rms_norm: gamma is (4) but should be (8)");
  EXPECT_EQ(complaint_of([&] {
              layer_norm(
                  stream_,
                  {gamma_.view(), gamma_.view(), {}, y_.view(), rows_.view(), rows_.view(), kEps});
            }),
            "layer_norm: x is (8) but should be (rows, cols)");
}

TEST_F(NormArguments, OfAnotherTypeAreNamed) {
  const Tensor bf16_gamma = runtime_.tensor({8}, DType::kBF16);
  EXPECT_EQ(complaint_of([&] {
              rms_norm(stream_, {x_.view(), bf16_gamma.view(), y_.view(), rows_.view(), kEps});
            }),
            "rms_norm: gamma is bf16 but should be f32");
}

TEST_F(NormArguments, MissingScratchIsNamed) {
  EXPECT_EQ(complaint_of([&] {
              rms_norm_backward(stream_, {.dy = y_.view(),
                                          .x = x_.view(),
                                          .gamma = gamma_.view(),
                                          .rstd = rows_.view(),
                                          .dx = {},
                                          .dgamma = {gamma_.view()},
                                          .scratch = {}});
            }),
            "rms_norm_backward: scratch holds 0 elements but norm_backward_scratch() asks for 16");
}

TEST_F(NormArguments, GradientsMayBeUnwanted) {
  EXPECT_EQ(complaint_of([&] {
              layer_norm_backward(stream_, {.dy = y_.view(),
                                            .x = x_.view(),
                                            .gamma = gamma_.view(),
                                            .mean = rows_.view(),
                                            .rstd = rows_.view(),
                                            .dx = {},
                                            .dgamma = {},
                                            .dbeta = {},
                                            .scratch = {}});
              stream_.synchronize();
            }),
            "accepted");
}

TEST_F(NormArguments, AViewOfAReleasedParameterIsRefused) {
  uint32_t generation = 3;
  View gamma = gamma_.view();
  gamma.generation = &generation;
  gamma.seen = 3;
  const auto call = [&] { rms_norm(stream_, {x_.view(), gamma, y_.view(), rows_.view(), kEps}); };
  EXPECT_EQ(complaint_of(call), "accepted");
  ++generation;
  EXPECT_NE(complaint_of(call).find("gamma (8) is a parameter that has been released"),
            std::string::npos);
}

}  // namespace
}  // namespace zpp::kernels
