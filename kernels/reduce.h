// Reductions with a fixed order (blocks that depend on the shape only, added one after the other,
// sums in f64): same bits for any number of threads.
#pragma once

#include "core/stream.h"
#include "core/types.h"

namespace zpp::kernels {

/// out[0] (+)= sum of x_i^2. A non-finite element makes the result non-finite.
/// Shapes:  x any, contiguous: f32, bf16 or f64   out (1) f64
/// Async:   enqueues on `stream`
/// Errors:  kInvalidArgument if shapes or dtypes disagree
void sum_squares(Stream& stream, const View& x, const Grad& out);

/// out (+)= sum over rows of x: the gradient of a bias. Four rows are added in the dtype of out,
/// their sums in f64.
/// Shapes:  x (rows, cols), rows dense: f32, bf16 or f64   out (cols) f32 (f64 for f64)
/// Async, errors as sum_squares
void sum_rows(Stream& stream, const View& x, const Grad& out);

/// out[0] = 1 if any element of x is NaN or Inf, else 0.
/// Shapes:  x any, contiguous: f32, bf16 or f64   out (1) i32
/// Async, errors as sum_squares
void any_nonfinite(Stream& stream, const View& x, const View& out);

}  // namespace zpp::kernels
