// Activations, residual additions and dropout.
#pragma once

#include "kernels/elementwise.h"
#include "model/autograd/tape.h"

namespace zpp {

using kernels::Activation;

/// Any shape; y like x.
Value gelu(const Value& x, Activation kind);

/// y = silu(gate) * up, with x = [gate | up] in the last dimension.
/// Shapes: x (..., 2F)   y (..., F)
/// Errors: kInvalidArgument if the last dimension is odd
Value swiglu(const Value& x);

/// a + b of one shape and dtype. A temporary that nobody else holds, as in add(x, linear(h, w)),
/// gives its memory to the sum.
/// Errors:  kInvalidArgument if shapes or dtypes disagree
Value add(Value a, Value b);

/// Zeroes elements with probability p and scales the others by 1 / (1 - p); x itself when the tape
/// is not training or p = 0. Masks depend on seed, step, sample and position on the tape only,
/// never on how a batch is cut.
/// Shapes:  x (samples, ...)
/// Errors:  kInvalidArgument unless 0 <= p < 1
Value dropout(const Value& x, double p);

}  // namespace zpp
