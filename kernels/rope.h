// Rotary positions on the query and key parts of a fused projection.
#pragma once

#include "core/stream.h"
#include "core/types.h"

namespace zpp::kernels {

/// Rotates the first `rotary_dims` channels of each head, half-split: channel i pairs with i +
/// rotary_dims / 2, by the angle position * theta^(-2 i / rotary_dims). With `inverse` by the
/// negative angle (the backward pass).
/// Shapes:  x, y (B, T, heads, D), x may be y   doc_start (B, T) i32 or absent: position = t -
///          doc_start[t]
/// Strides: the last dimension dense, others free
/// Dtypes:  x, y alike: f32, bf16 or f64; angles in f64, rotation in f32 (f64)
/// Async:   enqueues on `stream`
/// Errors:  kInvalidArgument if shapes or dtypes disagree, or rotary_dims is odd or above D
/// Source:  Su et al. 2021, arXiv:2104.09864; the half-split layout of GPT-NeoX and Llama
///          checkpoints
struct Rope {
  View x, y, doc_start;
  int64_t rotary_dims;
  double theta;
  bool inverse = false;
};
void rope(Stream& stream, const Rope& args);

}  // namespace zpp::kernels
