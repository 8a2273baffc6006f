// From token ids to activations, and to the one activation that sampling needs.
#pragma once

#include "model/autograd/tape.h"
#include "model/nn/parameter.h"

namespace zpp {

/// y[b, t] = table[tokens[b, t]] (+ positions[t]); positions count from the start of the token's
/// document when the tape knows documents.
/// Shapes:  tokens (B, T) i32   table (V, C)   positions (P, C), P >= T   y (B, T, C)
/// Errors:  kInvalidArgument if shapes disagree; a token outside [0, V) becomes the stream's error
Value embedding(Tape& tape, const Tensor& tokens, Parameter& table, Parameter* positions = nullptr);

/// The last position of each row.
/// Shapes:  x (B, T, C), T > 0   y (B, C)
Value last_position(const Value& x);

}  // namespace zpp
