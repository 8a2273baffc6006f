// Inner loops of AdamW and SGD over parameters [begin, end).
#pragma once

#include "kernels/cpu/isa.h"

namespace zpp::kernels {

/// One update with everything that does not depend on the parameter folded into factors.
struct AdamWUpdate {
  void* master;
  void* m;
  void* v;
  const void* grad;
  void* weights;  // bf16, may be null
  double grad_scale;
  double beta1, beta2;
  double step;        // lr / (1 - beta1^t); lr for SGD, which has no moments
  double root_scale;  // 1 / sqrt(1 - beta2^t)
  double eps;
  double decay;  // lr * weight_decay
};

struct AdamWSimd {
  using Fn = void(const AdamWUpdate&, int64_t begin, int64_t end);
  Fn* f32;
  Fn* f64;
  Fn* sgd_f32;
  Fn* sgd_f64;
};

ZPP_DECLARE_SIMD(AdamWSimd)

}  // namespace zpp::kernels
