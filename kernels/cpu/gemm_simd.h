// A packed matrix product of our own: for bf16 on CPUs without bf16 arithmetic (operands are
// widened while they are packed, so that it costs no extra pass), for f64, and wherever the library
// has only its reference loops.
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
};

/// Rows [m0, m1) and columns [n0, n1) of c.
struct GemmTile {
  int64_t m0, m1, n0, n1;
};

struct GemmSimd {
  /// Computes a tile of at most max_rows x max_cols. `scratch`: scratch_bytes(), 64-byte aligned.
  void (*tile)(const GemmProblem& problem, const GemmTile& tile, void* scratch);
  int64_t max_rows, max_cols;
  int64_t scratch_bytes;
  /// Tiles with multiples of these sizes waste no lanes.
  int64_t row_step, col_step;
};

ZPP_DECLARE_SIMD(GemmSimd)

}  // namespace zpp::kernels
