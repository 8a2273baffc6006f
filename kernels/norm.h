// LayerNorm and RMSNorm over the last dimension.
#pragma once

#include "core/stream.h"
#include "core/types.h"

namespace zpp::kernels {

/// Row-wise RMS normalisation: y = x * rstd * gamma, rstd = 1 / sqrt(mean(x^2) + eps).
/// Shapes:  x, y (rows, cols)   gamma (cols)   rstd (rows)
/// Dtypes:  x, y, gamma alike: f32, bf16 or f64; rstd f64 for f64, else f32
/// Units:   eps is added to a mean square
/// Async:   enqueues on `stream`
/// Errors:  kInvalidArgument if shapes or dtypes disagree
/// Source:  Zhang & Sennrich 2019, arXiv:1910.07467, eq. 4
struct RmsNorm {
  View x, gamma, y, rstd;
  float eps;
};
void rms_norm(Stream& stream, const RmsNorm& args);

/// Gradients of rms_norm, each of them optional.
/// Shapes:  dy, dx like x   dgamma (cols)   scratch: norm_backward_scratch() elements, or absent
///          without dgamma
/// Dtypes:  dx like x; dgamma and scratch like rstd
/// Async:   enqueues on `stream`
/// Errors:  as rms_norm
/// Note:    same bits for any number of threads
struct RmsNormBackward {
  View dy, x, gamma, rstd;
  Grad dx, dgamma;
  View scratch;
};
void rms_norm_backward(Stream& stream, const RmsNormBackward& args);

/// Row-wise layer normalisation: y = (x - mean) * rstd * gamma + beta, rstd = 1 / sqrt(var + eps),
/// biased variance.
/// Shapes:  x, y (rows, cols)   gamma, beta (cols), beta may be absent   mean, rstd (rows)
/// Dtypes:  x, y, gamma, beta alike: f32, bf16 or f64; mean, rstd f64 for f64, else f32
/// Units:   eps is added to a variance
/// Async:   enqueues on `stream`
/// Errors:  kInvalidArgument if shapes or dtypes disagree
/// Source:  Ba et al. 2016, arXiv:1607.06450
struct LayerNorm {
  View x, gamma, beta, y, mean, rstd;
  float eps;
};
void layer_norm(Stream& stream, const LayerNorm& args);

/// Gradients of layer_norm, each of them optional.
/// Shapes:  as rms_norm_backward, dbeta like dgamma; scratch absent without either
/// Dtypes, async, errors, note as rms_norm_backward
struct LayerNormBackward {
  View dy, x, gamma, mean, rstd;
  Grad dx, dgamma, dbeta;
  View scratch;
};
void layer_norm_backward(Stream& stream, const LayerNormBackward& args);

/// Elements of scratch for the column sums of either backward: partial sums of fixed row blocks,
/// added in a fixed order, so that the result does not depend on the number of threads.
int64_t norm_backward_scratch(int64_t rows, int64_t cols);

}  // namespace zpp::kernels
