// Inner loops of block quantization.
#pragma once

#include "core/rng.h"
#include "kernels/cpu/isa.h"
#include "kernels/quant_format.h"

namespace zpp::kernels {

/// n values that are the sum of coded ones.
struct CodedSum {
  const Coded* sources;
  int count;
  QuantFormat format;
  int64_t n;
};

/// Where n values go as codes.
struct EncodeTo {
  QuantFormat format;
  int64_t n;
  const RngKey* rounding;  // may be null
  int64_t first;
  std::byte* codes;
  float* scales;
};

/// Where they go decoded.
struct DecodeTo {
  void* out;
  float scale;
  bool hadamard;
  bool accumulate;
  bool stream;  // stores may go past the caches: `out` is aligned, and not added to
};

struct QuantizeSimd {
  /// By bits: 8, 4.
  struct ByBits {
    void (*encode_f32)(const void* from, bool hadamard, const EncodeTo& to);
    void (*encode_bf16)(const void* from, bool hadamard, const EncodeTo& to);
    void (*decode_f32)(const CodedSum& from, const DecodeTo& to);
    void (*decode_bf16)(const CodedSum& from, const DecodeTo& to);
    /// By bits of the sources: 8, 4.
    void (*encode_sum[2])(const CodedSum& from, const EncodeTo& to);
  };
  ByBits by_bits[2];
};

ZPP_DECLARE_SIMD(QuantizeSimd)

}  // namespace zpp::kernels
