#include "tests/kernels/gemm_cases.h"

#include <fmt/format.h>

#include "kernels/gemm.h"

namespace zpp::kernels {

namespace {

Shape stored(const GemmShape& s, bool transposed, int64_t rows, int64_t cols) {
  if (transposed) std::swap(rows, cols);
  return s.batch > 0 ? Shape{s.batch, rows, cols} : Shape{rows, cols};
}

View as_matrix(const View& view, bool transposed) {
  return transposed ? view.transpose(-2, -1) : view;
}

size_t at(bool transposed, int64_t rows, int64_t cols, int64_t row, int64_t col) {
  return static_cast<size_t>(transposed ? col * rows + row : row * cols + col);
}

void multiply(const GemmShape& s, const std::vector<Values>& in, Values& c) {
  const int64_t count = s.batch > 0 ? s.batch : 1;
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t m = 0; m < s.m; ++m) {
      for (int64_t n = 0; n < s.n; ++n) {
        double sum = s.bias == BiasKind::kNone ? 0.0 : in[2][static_cast<size_t>(n)];
        for (int64_t k = 0; k < s.k; ++k) {
          sum += in[0][static_cast<size_t>(i * s.m * s.k) + at(s.a_transposed, s.m, s.k, m, k)] *
                 in[1][static_cast<size_t>(i * s.k * s.n) + at(s.b_transposed, s.k, s.n, k, n)];
        }
        double& out = c[static_cast<size_t>(i * s.m * s.n) + at(s.c_transposed, s.m, s.n, m, n)];
        out = s.accumulate ? out + sum : sum;
      }
    }
  }
}

}  // namespace

OpCase gemm_case(const GemmShape& s) {
  OpCase op;
  op.name = fmt::format("gemm {}x{}x{} batch {} transposed {}{}{} bias {} accumulate {}", s.m, s.n,
                        s.k, s.batch, s.a_transposed, s.b_transposed, s.c_transposed,
                        static_cast<int>(s.bias), s.accumulate);
  op.inputs = {{"a", stored(s, s.a_transposed, s.m, s.k)},
               {"b", stored(s, s.b_transposed, s.k, s.n)}};
  if (s.bias != BiasKind::kNone) {
    const Role role = s.bias == BiasKind::kF32 ? Role::kAccum : Role::kData;
    op.inputs.push_back({"bias", {s.n}, role});
  }
  op.outputs = {{.name = "c",
                 .shape = stored(s, s.c_transposed, s.m, s.n),
                 .role = s.c_accumulator ? Role::kAccum : Role::kData,
                 .fill = s.accumulate ? normal() : Fill{},
                 .terms = static_cast<double>(s.k + 2)}};
  op.run = [s](Stream& stream, const Views& in, const Views& out) {
    gemm(stream, {.a = as_matrix(in[0], s.a_transposed),
                  .b = as_matrix(in[1], s.b_transposed),
                  .bias = in.size() > 2 ? in[2] : View{},
                  .c = {as_matrix(out[0], s.c_transposed), s.accumulate}});
  };
  op.reference = [s](const std::vector<Values>& in, std::vector<Values>& out) {
    multiply(s, in, out[0]);
  };
  op.flops = 2.0 * static_cast<double>(s.m * s.n * s.k);
  op.same_bits_on_any_threads = false;
  return op;
}

std::vector<GemmShape> gemm_shapes() {
  std::vector<GemmShape> shapes;
  // Transposes, additions and output types on one odd size.
  for (int bits = 0; bits < 32; ++bits) {
    GemmShape s{.m = 19, .n = 37, .k = 29};
    s.a_transposed = bits & 1;
    s.b_transposed = bits & 2;
    s.c_transposed = bits & 4;
    s.accumulate = bits & 8;
    s.c_accumulator = bits & 16;
    if (!s.c_transposed) s.bias = static_cast<BiasKind>(bits % 3);
    shapes.push_back(s);
  }
  const BiasKind bias = BiasKind::kF32;
  shapes.push_back({.m = 1, .n = 1, .k = 1});
  shapes.push_back({.m = 1, .n = 50, .k = 3, .b_transposed = true});
  shapes.push_back({.m = 50, .n = 1, .k = 3, .a_transposed = true, .bias = bias});
  // Across the blocks of our own kernel: rows, columns, depth.
  shapes.push_back({.m = 300, .n = 30, .k = 9, .b_transposed = true, .bias = bias});
  shapes.push_back({.m = 7, .n = 1100, .k = 5, .accumulate = true});
  shapes.push_back({.m = 23, .n = 70, .k = 515, .b_transposed = true, .bias = bias});
  shapes.push_back({.m = 70, .n = 23, .k = 515, .a_transposed = true, .accumulate = true});
  // Large enough to be cut into slices for several threads.
  shapes.push_back({.m = 130, .n = 200, .k = 300, .b_transposed = true, .bias = bias});
  shapes.push_back({.m = 200, .n = 130, .k = 300, .a_transposed = true, .accumulate = true});
  shapes.push_back({.m = 60, .n = 40, .k = 600, .a_transposed = true, .accumulate = true});
  shapes.push_back({.m = 9, .n = 17, .k = 21, .bias = bias, .batch = 5});
  shapes.push_back(
      {.m = 9, .n = 17, .k = 21, .a_transposed = true, .accumulate = true, .batch = 3});
  for (const bool accumulate : {false, true}) {
    shapes.push_back({.m = 0, .n = 5, .k = 4, .accumulate = accumulate});
    shapes.push_back({.m = 5, .n = 0, .k = 4, .accumulate = accumulate});
    shapes.push_back({.m = 6, .n = 5, .k = 0, .accumulate = accumulate});
    shapes.push_back({.m = 6, .n = 5, .k = 0, .bias = bias, .accumulate = accumulate});
  }
  // Sums that are cut into several depths, and outputs narrower than their sums.
  for (int bits = 0; bits < 4; ++bits) {
    GemmShape s{.m = 40, .n = 50, .k = 2100, .b_transposed = true};
    if (bits & 1) std::swap(s.m, s.n);
    s.accumulate = bits & 2;
    s.bias = bits & 2 ? BiasKind::kF32 : BiasKind::kNone;
    shapes.push_back(s);
  }
  return shapes;
}

}  // namespace zpp::kernels
