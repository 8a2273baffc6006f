// Inner loops of the cross-entropy over one row of logits.
#pragma once

#include "kernels/cpu/isa.h"

namespace zpp::kernels {

/// log(sum exp(logits)) = max + log(sum) without overflow.
struct RowSum {
  double max;
  double sum;  // of exp(logits - max)
};

struct CrossEntropySimd {
  using Sum = RowSum(const void* logits, int64_t n);
  /// dlogits = scale * exp(logits - max) / sum.
  using Gradient = void(const void* logits, const RowSum& row, double scale, void* dlogits,
                        int64_t n);

  ByType<Sum> sum;            // by the dtype of logits (bf16 is not used)
  ByType<Gradient> gradient;  // by the dtype of dlogits: f64 from f64 logits, else from f32
};

ZPP_DECLARE_SIMD(CrossEntropySimd)

}  // namespace zpp::kernels
