#include "kernels/elementwise.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/op_case.h"

namespace zpp::kernels {
namespace {

// Nothing, one, an odd tail, and enough for several threads.
constexpr int64_t kCounts[] = {0, 1, 77, 40003};

using Pointwise = std::function<double(double a, double b, double before)>;

/// out = f(a, b, before).
OpCase pointwise(const std::string& name, int64_t n, bool accumulate,
                 std::function<void(Stream&, const Views&, const Grad&)> run, const Pointwise& f) {
  OpCase op;
  op.name = fmt::format("{} of {} accumulate {}", name, n, accumulate);
  op.inputs = {{.name = "a", .shape = {n}, .fill = normal(2.0f)}, {.name = "b", .shape = {n}}};
  op.outputs = {{.name = "out", .shape = {n}, .fill = accumulate ? normal() : Fill{}}};
  op.run = [=](Stream& stream, const Views& in, const Views& out) {
    run(stream, in, {out[0], accumulate});
  };
  op.reference = [=](const std::vector<Values>& in, std::vector<Values>& out) {
    for (size_t i = 0; i < out[0].size(); ++i) {
      const double before = accumulate ? out[0][i] : 0.0;
      out[0][i] = before + f(in[0][i], in[1][i], before);
    }
  };
  return op;
}

double gelu_tanh(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
double gelu_tanh_slope(double x) {
  const double t = std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}
double gelu_erf(double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }
double gelu_erf_slope(double x) {
  return 0.5 * (1 + std::erf(x / std::sqrt(2.0))) + x * std::exp(-x * x / 2) / std::sqrt(2 * M_PI);
}

TEST(Add, AgreesWithTheReference) {
  for (int64_t n : kCounts) {
    run_op_case(pointwise(
        "add", n, false,
        [](Stream& s, const Views& in, const Grad& out) { add(s, in[0], in[1], out.view); },
        [](double a, double b, double) { return a + b; }));
  }
}

TEST(Add, WorksInPlace) {
  OpCase op;
  op.name = "add in place";
  op.inputs = {{.name = "b", .shape = {333}}};
  op.outputs = {{.name = "a", .shape = {333}, .fill = normal()}};
  op.run = [](Stream& s, const Views& in, const Views& out) { add(s, out[0], in[0], out[0]); };
  op.reference = [](const std::vector<Values>& in, std::vector<Values>& out) {
    for (size_t i = 0; i < out[0].size(); ++i) out[0][i] += in[0][i];
  };
  run_op_case(op);
}

TEST(Copy, ScalesAndAccumulates) {
  for (int64_t n : kCounts) {
    for (bool accumulate : {false, true}) {
      for (double scale : {1.0, -0.3}) {
        run_op_case(pointwise(
            "copy", n, accumulate,
            [=](Stream& s, const Views& in, const Grad& out) { copy(s, in[0], out, scale); },
            [=](double a, double, double) { return scale * a; }));
      }
    }
  }
}

TEST(Copy, ConvertsBetweenAllTypes) {
  // The case's dtype against f32 (f64), f64, and from each of them back to it.
  for (bool accumulate : {false, true}) {
    for (Role from : {Role::kData, Role::kAccum, Role::kF64}) {
      for (Role to : {Role::kData, Role::kAccum, Role::kF64}) {
        OpCase op = pointwise(
            "copy", 301, accumulate,
            [](Stream& s, const Views& in, const Grad& out) { copy(s, in[0], out, 1.5); },
            [](double a, double, double) { return 1.5 * a; });
        op.inputs[0].role = from;
        op.outputs[0].role = to;
        run_op_case(op);
      }
    }
  }
}

TEST(ScaleBy, ReadsItsFactorOnTheDevice) {
  for (Role role : {Role::kAccum, Role::kF64}) {
    OpCase op = pointwise(
        "scale_by", 500, true,
        [](Stream& s, const Views& in, const Grad& out) { scale_by(s, in[0], in[2], out); },
        [](double a, double, double) { return 0.25 * a; });
    op.inputs.push_back({.name = "factor", .shape = {1}, .role = role, .fill = constant(0.25)});
    run_op_case(op);
  }
}

TEST(Fill, ConvertsTheValueToEveryType) {
  Runtime runtime{{.device = {}, .threads = 2}};
  Stream& stream = runtime.compute();
  const auto filled = [&](auto zero, double value) {
    using T = decltype(zero);
    const Tensor t = runtime.tensor({3, 5}, DTypeOf<T>::value);
    fill(stream, t.view(), value);
    return copy_to_host<T>(stream, t.view());
  };
  EXPECT_EQ(filled(float{}, 0.1), std::vector<float>(15, 0.1f));
  EXPECT_EQ(filled(double{}, 0.1), std::vector<double>(15, 0.1));
  EXPECT_EQ(filled(int32_t{}, -1), std::vector<int32_t>(15, -1));
  EXPECT_EQ(filled(int64_t{}, 7), std::vector<int64_t>(15, 7));
  EXPECT_EQ(filled(int8_t{}, -3), std::vector<int8_t>(15, int8_t{-3}));
  EXPECT_EQ(filled(uint8_t{}, 200), std::vector<uint8_t>(15, uint8_t{200}));
  for (bf16 x : filled(bf16{}, 0.1)) EXPECT_EQ(x.bits, to_bf16(0.1f).bits);
}

TEST(Activation, AgreesWithTheReference) {
  for (int64_t n : kCounts) {
    run_op_case(pointwise(
        "gelu_tanh", n, false,
        [](Stream& s, const Views& in, const Grad& out) {
          activation(s, Activation::kGeluTanh, in[0], out.view);
        },
        [](double a, double, double) { return gelu_tanh(a); }));
    run_op_case(pointwise(
        "gelu_erf", n, false,
        [](Stream& s, const Views& in, const Grad& out) {
          activation(s, Activation::kGeluErf, in[0], out.view);
        },
        [](double a, double, double) { return gelu_erf(a); }));
  }
}

TEST(Activation, BackwardAgreesWithTheReference) {
  for (bool accumulate : {false, true}) {
    run_op_case(pointwise(
        "gelu_tanh_backward", 40003, accumulate,
        [](Stream& s, const Views& in, const Grad& out) {
          activation_backward(s, Activation::kGeluTanh, in[1], in[0], out);
        },
        [](double a, double b, double) { return b * gelu_tanh_slope(a); }));
    run_op_case(pointwise(
        "gelu_erf_backward", 77, accumulate,
        [](Stream& s, const Views& in, const Grad& out) {
          activation_backward(s, Activation::kGeluErf, in[1], in[0], out);
        },
        [](double a, double b, double) { return b * gelu_erf_slope(a); }));
  }
}

TEST(Activation, BackwardIsTheGradientOfForward) {
  for (Activation kind : {Activation::kGeluTanh, Activation::kGeluErf}) {
    GradientCase grad;
    grad.forward.name = "activation";
    grad.forward.inputs = {{.name = "x", .shape = {40}}};
    grad.forward.outputs = {{.name = "y", .shape = {40}}};
    grad.forward.run = [=](Stream& s, const Views& in, const Views& out) {
      activation(s, kind, in[0], out[0]);
    };
    grad.wrt = {0};
    grad.through = {0};
    grad.backward = [=](Stream& s, const Views& in, const Views&, const Views& dout,
                        const Views& din, const std::function<View(int64_t)>&) {
      activation_backward(s, kind, dout[0], in[0], {din[0]});
    };
    check_gradient(grad);
  }
}

TEST(Activation, IsExactInTheTailsAndKeepsNaN) {
  Runtime runtime{{.device = {}, .threads = 1}};
  Stream& stream = runtime.compute();
  const Tensor x = runtime.tensor({4}, DType::kF32), y = runtime.tensor({4}, DType::kF32);
  for (Activation kind : {Activation::kGeluTanh, Activation::kGeluErf}) {
    copy_from_host(stream, std::vector<float>{-1e4f, 1e4f, 0.0f, NAN}, x.view());
    activation(stream, kind, x.view(), y.view());
    const std::vector<float> got = copy_to_host<float>(stream, y.view());
    EXPECT_EQ(got[0], 0.0f);
    EXPECT_EQ(got[1], 1e4f);
    EXPECT_EQ(got[2], 0.0f);
    EXPECT_TRUE(std::isnan(got[3]));
  }
}

OpCase swiglu_case(int64_t rows, int64_t width) {
  OpCase op;
  op.name = fmt::format("swiglu {}x{}", rows, width);
  op.inputs = {{.name = "x", .shape = {rows, 2 * width}}};
  op.outputs = {{.name = "y", .shape = {rows, width}}};
  op.run = [](Stream& s, const Views& in, const Views& out) { swiglu(s, in[0], out[0]); };
  op.reference = [=](const std::vector<Values>& in, std::vector<Values>& out) {
    for (int64_t i = 0; i < rows * width; ++i) {
      const auto gate = static_cast<size_t>(i / width * 2 * width + i % width);
      const double g = in[0][gate];
      out[0][static_cast<size_t>(i)] =
          g / (1 + std::exp(-g)) * in[0][gate + static_cast<size_t>(width)];
    }
  };
  return op;
}

OpCase swiglu_backward_case(int64_t rows, int64_t width, bool accumulate) {
  OpCase op;
  op.name = fmt::format("swiglu_backward {}x{} accumulate {}", rows, width, accumulate);
  op.inputs = {{.name = "dy", .shape = {rows, width}}, {.name = "x", .shape = {rows, 2 * width}}};
  op.outputs = {{.name = "dx", .shape = {rows, 2 * width}, .fill = accumulate ? normal() : Fill{}}};
  op.run = [=](Stream& s, const Views& in, const Views& out) {
    swiglu_backward(s, in[0], in[1], {out[0], accumulate});
  };
  op.reference = [=](const std::vector<Values>& in, std::vector<Values>& out) {
    for (int64_t i = 0; i < rows * width; ++i) {
      const auto at = static_cast<size_t>(i), w = static_cast<size_t>(width);
      const auto gate = static_cast<size_t>(i / width * 2 * width + i % width);
      const double g = in[1][gate], s = 1 / (1 + std::exp(-g));
      if (!accumulate) out[0][gate] = out[0][gate + w] = 0;
      out[0][gate] += in[0][at] * in[1][gate + w] * s * (1 + g * (1 - s));
      out[0][gate + w] += in[0][at] * g * s;
    }
  };
  return op;
}

TEST(SwiGlu, AgreesWithTheReference) {
  for (auto [rows, width] : {std::pair<int64_t, int64_t>{0, 4}, {1, 1}, {3, 21}, {50, 700}}) {
    run_op_case(swiglu_case(rows, width));
    for (bool accumulate : {false, true}) {
      run_op_case(swiglu_backward_case(rows, width, accumulate));
    }
  }
}

TEST(SwiGlu, BackwardIsTheGradientOfForward) {
  GradientCase grad;
  grad.forward = swiglu_case(4, 6);
  grad.wrt = {0};
  grad.through = {0};
  grad.backward = [](Stream& s, const Views& in, const Views&, const Views& dout, const Views& din,
                     const std::function<View(int64_t)>&) {
    swiglu_backward(s, dout[0], in[0], {din[0]});
  };
  check_gradient(grad);
}

TEST(Elementwise, BadArgumentsAreNamed) {
  Runtime runtime{{.device = {}, .threads = 1}};
  Stream& stream = runtime.compute();
  const Tensor a = runtime.tensor({2, 6}, DType::kF32), b = runtime.tensor({5}, DType::kF32);
  const Tensor i = runtime.tensor({12}, DType::kI32), h = runtime.tensor({12}, DType::kBF16);
  EXPECT_EQ(complaint_of([&] { add(stream, a.view(), b.view(), a.view()); }),
            "add: b is (5) but should have as many elements as a (2, 6)");
  EXPECT_EQ(complaint_of([&] { add(stream, a.view(), h.view(), a.view()); }),
            "add: b is bf16 but should be f32");
  EXPECT_EQ(complaint_of([&] { copy(stream, a.view(), {}); }),
            "copy: to is absent but should have as many elements as from (2, 6)");
  EXPECT_EQ(complaint_of([&] { copy(stream, i.view(), {a.view()}); }),
            "copy: from is i32 but should be f32 or bf16 or f64");
  EXPECT_EQ(complaint_of([&] { fill(stream, a.view().transpose(0, 1), 0); }),
            "fill: out (6, 2) has strides (1, 6) but should be dense row-major");
  EXPECT_EQ(complaint_of([&] { swiglu(stream, b.view(), a.view()); }),
            "swiglu: x is (5) but should be (rows, 2F)");
  EXPECT_EQ(complaint_of([&] {
              dropout(stream, {a.view(), {a.view()}, 1.0f, {}});
            }),
            "dropout: p is 1 but should be at least 0 and below 1");
  EXPECT_EQ(complaint_of([&] { scale_by(stream, a.view(), b.view(), {a.view()}); }),
            "scale_by: factor is (5) but should be one number");
}

}  // namespace
}  // namespace zpp::kernels
