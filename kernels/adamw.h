// Updates of flat buffers (AdamW, SGD), and the guard that decides on the device whether a step is
// applied.
#pragma once

#include "core/stream.h"
#include "core/types.h"

namespace zpp::kernels {

/// What a step's guard leaves on the device for AdamW and for the host to read later. One
/// (kGuardSize) f64 buffer.
enum GuardSlot : int {
  kGuardGradNorm = 0,  // before clipping
  kGuardScale = 1,     // factor for the gradients: clip factor, or 0 when skipped
  kGuardSkip = 2,      // 1 when the norm or the loss is not finite: nothing changes
  kGuardApplied = 3,   // number of updates applied so far, this one included: AdamW's t
  kGuardSize = 4,
};

/// From the sum of squares of all gradients and the loss of the step: norm, clip factor min(1,
/// max_norm / norm), skip flag and the count of applied steps (kept across calls; initialise the
/// buffer with zeros).
/// Shapes:  sum_squares (1) f64   loss (1) f32 or f64   guard (kGuardSize) f64
/// Units:   max_norm <= 0 means no clipping
void step_guard(Stream& stream, const View& sum_squares, const View& loss, double max_norm,
                const View& guard);

/// m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2; master -= lr * (m / c1 / (sqrt(v / c2) + eps) +
/// weight_decay * master), with g = guard scale * grad and c1, c2 the bias corrections 1 - b^t;
/// weights = master rounded. Does nothing on a skipped step.
/// Shapes:  all flat of the same count; master, m, v, grad f32 (f64 all for f64); weights bf16, or
///          absent when master itself is used
/// Async:   enqueues on `stream`
/// Errors:  kInvalidArgument if counts or dtypes disagree
/// Source:  Loshchilov & Hutter 2017, arXiv:1711.05101, algorithm 2 (decay scaled by the learning
///          rate)
struct AdamW {
  View master, m, v, grad, weights, guard;
  double lr, beta1, beta2, eps, weight_decay;
};
void adamw(Stream& stream, const AdamW& args);

/// master -= lr * (g + weight_decay * master). Shapes, dtypes, guard and errors as AdamW's.
struct Sgd {
  View master, grad, weights, guard;
  double lr, weight_decay;
};
void sgd(Stream& stream, const Sgd& args);

}  // namespace zpp::kernels
