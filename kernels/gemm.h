// Matrix products, through the device's library (oneDNN on the CPU) or a product of our own where
// that is faster: gemm_path() tells.
#pragma once

#include <string>

#include "core/stream.h"
#include "core/types.h"

namespace zpp::kernels {

/// c = a @ b (+ bias), or c += a @ b (+ bias) when c.accumulate. Sums in f32 (f64 for f64).
/// Shapes:  a (M, K)  b (K, N)  c (M, N)  bias (N) or absent;
///          or all but the bias with one leading batch dimension (same count)
/// Strides: one dense dimension among the last two: a transpose is a view, never a copy;
///          rows of c dense when there is a bias
/// Dtypes:  a, b alike: f32, bf16 or f64. c: the same, or f32 for bf16 inputs (gradients, logits).
///          bias: the dtype of a, or f32
/// Async:   enqueues on `stream`
/// Errors:  kInvalidArgument if shapes, strides or dtypes disagree.
///          M, N or K may be 0 (K = 0 makes zeros, or keeps c)
/// Note:    same bits for the same shapes, strides and thread count
struct Gemm {
  View a, b, bias;
  Grad c;
};
void gemm(Stream& stream, const Gemm& args);

/// What computes products of `dtype` on this device, for people: "oneDNN bf16" or, on a CPU without
/// bf16 arithmetic, "zpp f32, bf16 widened while packing". The path of most products: f32 ones that
/// sum over few terms with a strided operand are ours even where this says oneDNN.
std::string gemm_path(Stream& stream, DType dtype);

/// Best rate in FLOP/s that this device's GEMM reaches in `dtype` (square products, a fraction of a
/// second, blocks the host): the measured peak that MFU is quoted against. `scratch` holds the
/// operands: at least gemm_peak_scratch_bytes().
double measure_gemm_peak(Stream& stream, DType dtype, const View& scratch);
int64_t gemm_peak_scratch_bytes(DType dtype);

}  // namespace zpp::kernels
