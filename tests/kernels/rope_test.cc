#include "kernels/rope.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/op_case.h"

namespace zpp::kernels {
namespace {

struct Size {
  int64_t batch, length, heads, width, rotary;
};
// Nothing rotated, all, a part, an odd number of pairs, and more pairs than one pass takes.
constexpr Size kSizes[] = {{0, 3, 2, 8, 8},  {1, 1, 1, 1, 0},    {2, 5, 3, 8, 8},
                           {2, 9, 2, 16, 6}, {1, 70, 1, 31, 30}, {2, 3, 2, 192, 150}};
constexpr double kTheta = 10000;

Fill document_starts(int64_t length) {
  return [=](uint64_t, int64_t i) { return static_cast<double>(i % length / 4 * 4); };
}

/// Rotates `values` (B, T, heads, D) in place.
void rotate(Size s, bool inverse, const Values* doc_start, Values& values) {
  const auto half = static_cast<size_t>(s.rotary / 2);
  for (int64_t row = 0; row < s.batch * s.length * s.heads; ++row) {
    const int64_t place = row / s.heads;
    double position = static_cast<double>(place % s.length);
    if (doc_start != nullptr) position -= (*doc_start)[static_cast<size_t>(place)];
    double* x = values.data() + row * s.width;
    for (size_t i = 0; i < half; ++i) {
      const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(s.rotary);
      const double angle = (inverse ? -1 : 1) * position * std::pow(kTheta, exponent);
      const double low = x[i], high = x[i + half];
      x[i] = low * std::cos(angle) - high * std::sin(angle);
      x[i + half] = high * std::cos(angle) + low * std::sin(angle);
    }
  }
}

OpCase rope_case(Size s, bool inverse, bool documents) {
  OpCase op;
  op.name = fmt::format("rope {}x{}x{}x{} rotary {} inverse {} documents {}", s.batch, s.length,
                        s.heads, s.width, s.rotary, inverse, documents);
  const Shape shape{s.batch, s.length, s.heads, s.width};
  op.inputs = {{.name = "x", .shape = shape},
               {.name = "doc_start",
                .shape = {s.batch, s.length},
                .role = Role::kI32,
                .fill = document_starts(s.length)}};
  op.outputs = {{.name = "y", .shape = shape}};
  op.run = [=](Stream& stream, const Views& in, const Views& out) {
    rope(stream, {.x = in[0],
                  .y = out[0],
                  .doc_start = documents ? in[1] : View{},
                  .rotary_dims = s.rotary,
                  .theta = kTheta,
                  .inverse = inverse});
  };
  op.reference = [=](const std::vector<Values>& in, std::vector<Values>& out) {
    out[0] = in[0];
    rotate(s, inverse, documents ? &in[1] : nullptr, out[0]);
  };
  return op;
}

TEST(Rope, AgreesWithTheReference) {
  for (Size s : kSizes) {
    for (bool inverse : {false, true}) {
      for (bool documents : {false, true}) run_op_case(rope_case(s, inverse, documents));
    }
  }
}

TEST(Rope, WorksInPlaceOnSlicesOfAFusedProjection) {
  // (B, T, 3 * heads * D): the middle third is rotated, the others stay.
  const Size s{2, 7, 2, 6, 4};
  const int64_t third = s.heads * s.width;
  OpCase op = rope_case(s, false, false);
  op.name += " in place";
  op.outputs[0].shape = {s.batch, s.length, 3 * third};
  op.outputs[0].fill = normal();
  op.run = [=](Stream& stream, const Views&, const Views& out) {
    View part = out[0].slice(2, third, 2 * third);
    part.shape = {s.batch, s.length, s.heads, s.width};
    part.strides = {out[0].stride(0), out[0].stride(1), s.width, 1};
    rope(stream, {part, part, {}, s.rotary, kTheta});
  };
  op.reference = [=](const std::vector<Values>&, std::vector<Values>& out) {
    const auto width = static_cast<size_t>(third);
    Values part;
    const auto each = [&](auto&& fn) {
      for (size_t i = 0; i < out[0].size(); ++i) {
        if (i % (3 * width) / width == 1) fn(out[0][i]);
      }
    };
    each([&](double x) { part.push_back(x); });
    rotate(s, false, nullptr, part);
    size_t next = 0;
    each([&](double& x) { x = part[next++]; });
  };
  run_op_case(op);
}

TEST(Rope, BackwardIsTheInverseRotation) {
  const Size s{1, 6, 2, 8, 6};
  GradientCase grad;
  grad.forward = rope_case(s, false, true);
  grad.wrt = {0};
  grad.through = {0};
  grad.backward = [=](Stream& stream, const Views& in, const Views&, const Views& dout,
                      const Views& din, const std::function<View(int64_t)>&) {
    rope(stream, {dout[0], din[0], in[1], s.rotary, kTheta, true});
  };
  check_gradient(grad);
}

TEST(Rope, IsExactAtFarPositions) {
  // Position 100,000 through a document start of that many tokens before the only token.
  Runtime runtime{{.device = {}, .threads = 1}};
  Stream& stream = runtime.compute();
  constexpr int64_t kWidth = 64;
  const Tensor x = runtime.tensor({1, 1, 1, kWidth}, DType::kF64);
  const Tensor start = runtime.tensor({1, 1}, DType::kI32);
  copy_from_host(stream, std::vector<int32_t>{-100000}, start.view());
  std::vector<double> ones(kWidth, 0.0);
  std::fill(ones.begin(), ones.begin() + kWidth / 2, 1.0);
  copy_from_host(stream, ones, x.view());
  rope(stream, {x.view(), x.view(), start.view(), kWidth, kTheta});
  const std::vector<double> y = copy_to_host<double>(stream, x.view());
  for (size_t i = 0; i < kWidth / 2; ++i) {
    // The last bits of the frequency count 100,000 times.
    const double angle = 1e5 * std::pow(kTheta, -2.0 * static_cast<double>(i) / kWidth);
    EXPECT_NEAR(y[i], std::cos(angle), 1e-15) << i;
    EXPECT_NEAR(y[i + kWidth / 2], std::sin(angle), 1e-15) << i;
  }
}

TEST(Rope, BadArgumentsAreNamed) {
  Runtime runtime{{.device = {}, .threads = 1}};
  Stream& stream = runtime.compute();
  const Tensor x = runtime.tensor({1, 2, 3, 8}, DType::kF32);
  const auto complaint = [&](const View& a, const View& b, int64_t rotary) {
    return complaint_of([&] { rope(stream, {a, b, {}, rotary, kTheta}); });
  };
  EXPECT_EQ(complaint(x.view(), x.view(), 3),
            "rope: rotary_dims is 3 but should be even and at most the head width 8");
  EXPECT_EQ(complaint(x.view(), x.view(), 10),
            "rope: rotary_dims is 10 but should be even and at most the head width 8");
  EXPECT_EQ(complaint(x.view(), x.view().transpose(0, 1), 4),
            "rope: y is (2, 1, 3, 8) but should be (1, 2, 3, 8)");
  EXPECT_EQ(complaint(x.view().transpose(2, 3), x.view().transpose(2, 3), 2),
            "rope: x has strides (48, 24, 1, 8) and y (48, 24, 1, 8) but their last dimension "
            "should be dense");
}

}  // namespace
}  // namespace zpp::kernels
