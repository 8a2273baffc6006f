// Attention over a fused projection, and the rotary positions that go before it.
#pragma once

#include "model/autograd/tape.h"

namespace zpp {

struct RopeSpec {
  int64_t rotary_dims;  // channels of each head that turn, even, from the first on
  double theta = 10000.0;
};

/// Turns queries and keys by angles that grow with the position in the row, or in the document when
/// the tape knows documents. Values pass unchanged. Works in place when handed a temporary that
/// nobody else holds.
/// Shapes:  qkv, y (B, T, (heads + 2 kv_heads) D): queries, keys, values side by side
/// Errors:  kInvalidArgument if the last dimension does not divide, or rotary_dims is odd or above
///          D
/// Source:  Su et al. 2021, arXiv:2104.09864; half-split pairs as in GPT-NeoX and Llama
Value rope(Value qkv, int64_t heads, int64_t kv_heads, const RopeSpec& spec);

/// Causal attention with scores scaled by 1 / sqrt(D), within documents when the tape knows them.
/// Each key head serves heads / kv_heads query heads. T x T is never stored.
/// Shapes:  qkv (B, T, (heads + 2 kv_heads) D): queries, keys, values side by side   y (B, T, heads
///          D)
/// Errors:  kInvalidArgument if the last dimension does not divide
Value causal_attention(const Value& qkv, int64_t heads, int64_t kv_heads);
inline Value causal_attention(const Value& qkv, int64_t heads) {
  return causal_attention(qkv, heads, heads);
}

}  // namespace zpp
