// Losses over a vocabulary: the mean negative log-likelihood of the targets that are not ignored.
#pragma once

#include "model/model.h"
#include "model/nn/parameter.h"

namespace zpp {

/// From logits that exist.
/// Shapes:  logits (B, T, V)   loss (1) f32 (f64 for f64)
/// Errors:  kInvalidArgument if the batch has no targets or other shapes; a target outside [-1, V)
///          becomes the stream's error
Value cross_entropy(const Value& logits, const Batch& batch);

/// cross_entropy(linear(h, w), batch), but logits are made and used up in chunks of rows, once: B T
/// x V is never stored and the product with w is not repeated. On a recording tape the loss is
/// therefore computed by the backward pass and cannot be read before it.
/// Shapes:  h (B, T, C)   w (V, C)   loss (1) f32 (f64 for f64)
/// Errors:  as cross_entropy
Value linear_cross_entropy(const Value& h, Parameter& w, const Batch& batch);

/// Rows of logits that linear_cross_entropy holds at a time: as many as fit a scratch of 32 MiB,
/// between 256 and 4096.
int64_t logits_chunk_rows(int64_t vocab);

}  // namespace zpp
