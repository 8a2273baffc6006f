// Block quantization: what weights and gradients are coded as on their way between ranks. Values come
// in blocks that share a scale: a code is an integer in [-q, q], q = 127 for 8 bits and 7 for 4, and
// means code * scale. Source: Dettmers et al. 2021, arXiv:2110.02861 (blocks); Wang et al. 2023,
// arXiv:2306.10209 (for collectives).
//
// Like host_reduce these run where they are called, on one thread: inside tasks of a communication
// stream. Any length and any address of values and codes will do; the bits that come out are the same
// on every instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/cpu_stream.h"
#include "core/rng.h"
#include "core/types.h"
#include "kernels/quant_format.h"

namespace zpp::kernels {

/// scale = max |x| / q of each block, code = x * (1 / scale) rounded: half to even, or up with the
/// probability of what is cut off. All in f32. Coding what was decoded gives the same codes.
///
/// A block of zeros has scale 0, and so has one whose largest value is below 2^-119 (1.5e-36): 1 /
/// scale would overflow. One that holds Inf or NaN has scale NaN, and so decodes to NaN. Both have
/// codes 0. All other finite values survive, up to the largest of f32.
/// Dtypes:  f32, bf16
/// Errors:  kInvalidArgument for other dtypes or formats
struct Quantize {
  const void* from = nullptr;
  DType dtype = DType::kF32;
  int64_t n = 0;
  QuantFormat format = {};
  /// Each 32 values are replaced by their Walsh-Hadamard transform first, which spreads outliers; a
  /// last group of fewer stays as it is. The first are divided by 32, the last by 4 (about sqrt(32),
  /// so that their sizes fit): exact, and no sum overflows. Dequantize undoes both.
  bool hadamard = false;
  /// Rounding is stochastic with this key, value i drawing number `first + i` of 16 bits: half (first
  /// + i) % 2 of word (first + i) / 2, the low one first. Codes of a decoded block stay what they are
  /// all the same. Null: to nearest.
  const RngKey* rounding = nullptr;
  int64_t first = 0;
  std::byte* codes = nullptr;
  float* scales = nullptr;
};
void quantize(Isa isa, const Quantize& args);

/// out (+)= scale * (sources[0] + sources[1] + ...), decoded and added in this order in f32, transformed
/// back if `hadamard`, and rounded once. With one source this is plain decoding.
/// Sizes:   n values in each; count >= 1; `out` must not overlap the sources
/// Dtypes:  out f32, bf16
/// Errors:  kInvalidArgument for other dtypes or formats, or no source
struct Dequantize {
  const Coded* sources = nullptr;
  int count = 1;
  int64_t n = 0;
  QuantFormat format = {};
  bool hadamard = false;
  float scale = 1;
  void* out = nullptr;
  DType out_dtype = DType::kF32;
  bool accumulate = false;
};
void dequantize(Isa isa, const Dequantize& args);

/// The sum of the sources coded again, in one pass: what stands between two hops of a reduction. The
/// bits are those of dequantize() to f32 and quantize(), both without a transform.
/// Errors:  kInvalidArgument for other formats, or no source
struct Requantize {
  const Coded* sources = nullptr;
  int count = 1;
  int64_t n = 0;
  QuantFormat format = {};     // of the sources
  QuantFormat to_format = {};  // of the codes
  const RngKey* rounding = nullptr;
  int64_t first = 0;
  std::byte* codes = nullptr;
  float* scales = nullptr;
};
void requantize(Isa isa, const Requantize& args);

}  // namespace zpp::kernels
