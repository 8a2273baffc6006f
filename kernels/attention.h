// Causal scaled dot-product attention that never stores the T x T scores.
#pragma once

#include "core/stream.h"
#include "core/types.h"

namespace zpp::kernels {

/// out = softmax(scale * q k^T, causal) v, per sample and head. Key head j serves the query heads
/// [j * H / KV, (j + 1) * H / KV). Query t sees keys [doc_start[t], t] (from 0 without doc_start).
/// Shapes:  q, out (B, T, H, D)   k, v (B, T, KV, D), KV divides H
///          lse (B, H, T): log of the softmax denominator   doc_start (B, T) i32 or absent
/// Strides: the last dimension dense, others free (slices of a fused projection are fine)
/// Dtypes:  q, k, v, out alike: f32, bf16 or f64; lse f64 for f64, else f32.
///          Scores and sums in f32 (f64)
/// Async:   enqueues on `stream`
/// Errors:  kInvalidArgument if shapes or dtypes disagree
/// Source:  Dao 2023, arXiv:2307.08691 (tiling and the saved log-sum-exp)
struct Attention {
  View q, k, v, out, lse, doc_start;
  float scale;
};
void attention(Stream& stream, const Attention& args);

/// dq, dk, dv are written, not accumulated; they may be slices of one (B, T, H + 2 KV, D) buffer.
/// Shapes:  as above; dout like out; scratch: attention_backward_scratch() elements or more
/// Dtypes:  as above; scratch like lse
/// Note:    parallel over (B, KV); same bits for any number of threads
struct AttentionBackward {
  View dout, q, k, v, out, lse, doc_start;
  View dq, dk, dv;
  View scratch;
  float scale;
};
void attention_backward(Stream& stream, const AttentionBackward& args);
/// Elements of scratch that attention_backward wants for these shapes on this stream.
int64_t attention_backward_scratch(Stream& stream, const Shape& q, const Shape& k);

}  // namespace zpp::kernels
