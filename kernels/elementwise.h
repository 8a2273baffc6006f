// One pass over memory per function: activations, additions, dropout, casts, fills.
#pragma once

#include "core/rng.h"
#include "core/stream.h"
#include "core/types.h"

namespace zpp::kernels {

// All views are contiguous with the same element count unless said; dtypes f32, bf16 or f64, alike
// unless said; sums and transcendental functions in f32 (f64 for f64). Every function enqueues on
// `stream` and raises kInvalidArgument when shapes or dtypes disagree. Empty inputs are fine.

/// out = a + b. `out` may be `a`.
void add(Stream& stream, const View& a, const View& b, const View& out);

/// to (+)= scale * from; dtypes (f32, bf16, f64) may differ: also the cast. With equal dtypes, scale 1
/// and no accumulation it copies any dtype.
void copy(Stream& stream, const View& from, const Grad& to, double scale = 1.0);
/// to (+)= factor[0] * from, with the factor on the device (f32 or f64).
void scale_by(Stream& stream, const View& from, const View& factor, const Grad& to);

/// Any dtype, value converted (bytes for integers).
void fill(Stream& stream, const View& out, double value);

enum class Activation : uint8_t {
  kGeluTanh,  // 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), as GPT-2
  kGeluErf,   // x Phi(x), as GPT-NeoX. Source: Hendrycks & Gimpel 2016, arXiv:1606.08415
};
void activation(Stream& stream, Activation kind, const View& x, const View& y);
void activation_backward(Stream& stream, Activation kind, const View& dy, const View& x,
                         const Grad& dx);

/// y = silu(gate) * up with x = [gate | up] in each row.
/// Shapes:  x (rows, 2F)   y (rows, F).
/// Source:  Shazeer 2020, arXiv:2002.05202
void swiglu(Stream& stream, const View& x, const View& y);
void swiglu_backward(Stream& stream, const View& dy, const View& x, const Grad& dx);

/// y = x / (1 - p) where element i of `key`'s stream is >= p, else 0. The mask is not stored: the
/// backward pass is the same call on the gradient.
struct Dropout {
  View x;
  Grad y;
  float p;
  RngKey key;
};
void dropout(Stream& stream, const Dropout& args);

/// out[i] = mean + stddev * normal_at(key, i): initial weights. f32, bf16 or f64.
void fill_normal(Stream& stream, const View& out, float mean, float stddev, const RngKey& key);

}  // namespace zpp::kernels
