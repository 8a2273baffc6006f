// Products with a weight matrix.
#pragma once

#include "model/autograd/tape.h"
#include "model/nn/parameter.h"

namespace zpp {

/// y = x w^T (+ bias). Gradients of w and bias go straight into their gradient buffers.
/// Shapes: x (..., in)   w (out, in)   bias (out)   y (..., out), in the dtype of x
/// Errors: kInvalidArgument if shapes disagree, naming the parameter
Value linear(const Value& x, Parameter& w, Parameter* bias = nullptr);

/// The same without bias and with y in f32 (f64 for f64): logits, which bf16 would round too much.
Value linear_f32(const Value& x, Parameter& w);

}  // namespace zpp
