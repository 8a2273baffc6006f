// Rows of a table by token id, with learned positions.
#pragma once

#include "core/stream.h"
#include "core/types.h"

namespace zpp::kernels {

/// y[b, t] = table[tokens[b, t]] (+ positions[t - doc_start[b, t]]).
/// Shapes:  tokens (B, T) i32   table (V, C)   positions (P, C) or absent, P >= T   doc_start (B,
///          T) i32 or absent   y (B, T, C)
/// Dtypes:  table, positions, y alike: f32, bf16 or f64
/// Async:   enqueues on `stream`; a token outside [0, V) becomes the stream's error
///          (kInvalidArgument, naming place and id)
/// Errors:  kInvalidArgument if shapes or dtypes disagree
struct Embedding {
  View tokens, table, positions, doc_start, y;
};
void embedding(Stream& stream, const Embedding& args);

/// Scatter-add in a fixed order (tokens ascending in (b, t) for each row): same bits on any number
/// of threads.
/// Shapes:  dy (B, T, C)   dtable (V, C), dpositions (P, C): f32 (f64 for f64), either may be
///          unwanted
/// Note:    without `accumulate` rows that no token names are set to zero
struct EmbeddingBackward {
  View dy, tokens, doc_start;
  Grad dtable, dpositions;
};
void embedding_backward(Stream& stream, const EmbeddingBackward& args);

}  // namespace zpp::kernels
