// Reductions with a fixed order: fixed blocks of elements, block sums added in order, in f64. Same
// bits for any number of threads.
#pragma once

#include "core/stream.h"
#include "core/types.h"

namespace zpp::kernels {

/// out[0] (+)= sum of x_i^2. x contiguous f32, bf16 or f64; out (1) f64. A non-finite element makes
/// the result non-finite.
void sum_squares(Stream& stream, const View& x, const Grad& out);

/// out (+)= sum over rows of x: the gradient of a bias.
/// Shapes:  x (rows, cols) dense rows; out (cols) f32 (f64 for f64).
void sum_rows(Stream& stream, const View& x, const Grad& out);

/// out[0] = 1 if any element of x is NaN or Inf, else 0. x contiguous f32, bf16 or f64; out (1)
/// i32.
void any_nonfinite(Stream& stream, const View& x, const View& out);

}  // namespace zpp::kernels
