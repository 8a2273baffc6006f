// Softmax cross-entropy on a chunk of rows of logits. The op above produces and consumes logits
// chunk by chunk, so that T x V is never stored.
#pragma once

#include "core/stream.h"
#include "core/types.h"

namespace zpp::kernels {

/// Adds the negative log-likelihoods of the rows to loss[0], scaled, and, when asked, turns logits
/// into their gradient:
///   loss[0] += loss_scale * sum over rows with target >= 0 of (logsumexp(logits) - logits[target])
///   dlogits = grad_scale * dy[0] * (softmax(logits) - onehot(target)), 0 in rows with target -1
/// Shapes:  logits (rows, V), rows dense, row stride free   targets (rows) i32, -1 is ignored
///          loss (1)   dy (1), or absent: then 1
///          dlogits like logits, or absent; may be the memory of logits if the dtype is the same
///          row_loss (rows): scratch
/// Dtypes:  logits, loss, dy, row_loss alike: f32 or f64; dlogits f32 or bf16 (f64 for f64)
/// Async:   enqueues on `stream`; a target >= V or < -1 becomes the stream's error
/// Errors:  kInvalidArgument if shapes or dtypes disagree
/// Note:    rows are summed in a fixed order in f64
struct CrossEntropy {
  View logits, targets, loss, dy, dlogits, row_loss;
  double loss_scale;
  double grad_scale;
};
void cross_entropy(Stream& stream, const CrossEntropy& args);

}  // namespace zpp::kernels
