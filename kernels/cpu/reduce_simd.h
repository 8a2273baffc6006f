// Inner loops of the reductions.
#pragma once

#include "kernels/cpu/isa.h"

namespace zpp::kernels {

struct ReduceSimd {
  ByType<double(const void* x, int64_t begin, int64_t end)> sum_squares;
  ByType<bool(const void* x, int64_t begin, int64_t end)> any_nonfinite;
  /// out[c] (+)= the sum of x[r * stride + c] over all rows, c in [begin, end).
  ByType<void(const void* x, int64_t rows, int64_t stride, void* out, bool accumulate,
              int64_t begin, int64_t end)>
      sum_rows;
};

ZPP_DECLARE_SIMD(ReduceSimd)

}  // namespace zpp::kernels
