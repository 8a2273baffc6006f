// The inner loops of our own matrix product (see gemm_packed.h): packing and register blocks.
#pragma once

#include "kernels/cpu/isa.h"

namespace zpp::kernels {

/// c (+)= a b + bias for one matrix of a batch, as pointers and strides in elements. The columns of
/// c are dense.
struct GemmProblem {
  const void* a = nullptr;
  const void* b = nullptr;
  const void* bias = nullptr;  // (n) or absent
  void* c = nullptr;
  int64_t m = 0, n = 0, k = 0;
  int64_t a_m = 0, a_k = 0, b_k = 0, b_n = 0, c_m = 0;
  DType dtype = DType::kF32;
  DType bias_dtype = DType::kF32;
  DType c_dtype = DType::kF32;
  bool accumulate = false;
  bool bypass_caches = false;  // whole blocks of c that are only stored go straight to memory
};

/// Rows [m0, m1) and columns [n0, n1) of c.
struct GemmTile {
  int64_t m0, m1, n0, n1;
};

/// Terms [begin, end) of the sums.
struct GemmDepth {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};

/// Lines of an operand (rows of a, columns of b) go into panels of `row_step` or `col_step` lines,
/// widened to the accumulator's type, term by term: to[term * step + line]. Missing lines are zero.
/// A panel takes panel_elements() of the accumulator's type.
struct GemmSimd {
  /// Packs the panel of a that starts with row m, or the panel of b that starts with column n.
  void (*pack_rows)(const GemmProblem& problem, int64_t m, GemmDepth depth, void* to);
  void (*pack_cols)(const GemmProblem& problem, int64_t n, GemmDepth depth, void* to);
  /// The register block at (m, n) from its two panels. The first of several depths stores or, when
  /// the problem accumulates, adds and applies the bias; later ones add. Where c is narrower than
  /// the accumulator, `sums` ((m, n) -> sums[m * n_total + n]) holds what earlier depths made and only the
  /// last depth writes c.
  void (*block)(const GemmProblem& problem, int64_t m, int64_t n, GemmDepth depth, const void* a,
                const void* b, void* sums);
  int64_t row_step;
  int64_t col_step;  // for f32 accumulators; half of it for f64
};

/// Elements of a panel of `step` lines: stores of whole vectors may spill behind its end.
inline int64_t panel_elements(int64_t step, int64_t depth) {
  constexpr int64_t kSpill = 8, kAlign = 16;
  return (step * depth + kSpill + kAlign - 1) / kAlign * kAlign;
}

ZPP_DECLARE_SIMD(GemmSimd)

}  // namespace zpp::kernels
