// Products that gemm is tested with, as library and on a CPU without bf16 arithmetic.
#pragma once

#include <vector>

#include "tests/kernels/op_case.h"

namespace zpp::kernels {

enum class BiasKind : uint8_t { kNone, kData, kF32 };

/// One product: sizes, which operands are transposed views, what is added.
struct GemmShape {
  int64_t m = 1, n = 1, k = 1;
  bool a_transposed = false, b_transposed = false, c_transposed = false;
  BiasKind bias = BiasKind::kNone;
  bool accumulate = false;
  bool c_accumulator = false;  // c in f32 for bf16
  int64_t batch = 0;           // 0: matrices without a batch dimension
};

OpCase gemm_case(const GemmShape& shape);

/// Odd, empty and block-crossing sizes, in all combinations of transposes and additions that gemm
/// accepts.
std::vector<GemmShape> gemm_shapes();

}  // namespace zpp::kernels
