// Normalisation over the last dimension.
#pragma once

#include "model/autograd/tape.h"
#include "model/nn/parameter.h"

namespace zpp {

/// y = x * gamma / sqrt(mean(x^2) + eps), row by row.
/// Shapes: x, y (..., C)   gamma (C)
/// Errors: kInvalidArgument if shapes disagree, naming the parameter
Value rms_norm(const Value& x, Parameter& gamma, float eps);

/// y = (x - mean) * gamma / sqrt(var + eps) (+ beta), row by row; beta may be nullptr.
/// Shapes: x, y (..., C)   gamma, beta (C)
/// Errors: kInvalidArgument if shapes disagree, naming the parameter
Value layer_norm(const Value& x, Parameter& gamma, Parameter* beta, float eps);

}  // namespace zpp
