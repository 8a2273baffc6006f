// Inner loops of the norms over rows [begin, end).
#pragma once

#include "kernels/cpu/isa.h"

namespace zpp::kernels {

/// Pointers of one call; mean, rstd and the partial sums are in the accumulation dtype.
struct NormForward {
  const void* x;
  const void* gamma;
  const void* beta;  // may be null
  void* y;
  void* mean;
  void* rstd;
  int64_t cols;
  double eps;
};

struct NormBackward {
  const void* dy;
  const void* x;
  const void* gamma;
  const void* mean;
  const void* rstd;
  void* dx;  // may be null
  bool accumulate;
  int64_t cols;
};

/// Column sums of one block of rows, (cols) each; null when not wanted.
struct NormPartials {
  void* dgamma;
  void* dbeta;
};

struct NormSimd {
  using Forward = void(const NormForward&, int64_t begin, int64_t end);
  using Backward = void(const NormBackward&, const NormPartials&, int64_t begin, int64_t end);
  /// out[c] (+)= the sum over b of partials[b * stride + c], c in [begin, end).
  using Combine = void(const void* partials, int64_t blocks, int64_t stride, void* out,
                       bool accumulate, int64_t begin, int64_t end);

  ByType<Forward> layer_norm, rms_norm;
  ByType<Backward> layer_norm_backward, rms_norm_backward;
  ByType<Combine> combine;
};

ZPP_DECLARE_SIMD(NormSimd)

}  // namespace zpp::kernels
