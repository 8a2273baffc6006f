// Sums and maxima over several arrays at once: what a collective does with what it received. Unlike
// other kernels these run where they are called, inside a task of a communication stream, on one
// thread: the workers belong to the computation.
#pragma once

#include "core/cpu_stream.h"
#include "core/types.h"

namespace zpp::kernels {

enum class HostReduction : uint8_t { kSum, kMax };

/// out = scale * (sources[0] + sources[1] + ...), added in this order in f32 (f64 for f64, integers
/// as they are, modulo 2^32 or 2^64) and rounded once; or the largest, NaN if any is NaN.
/// Sizes:   n elements in each; `out` may be one of the sources, else it must not overlap them
/// Dtypes:  sources f32, bf16, f64, i32, i64; out alike, or f32 for bf16
/// Errors:  kInvalidArgument for other dtypes, no source, or a scale of integers other than 1
struct HostReduce {
  HostReduction reduction = HostReduction::kSum;
  const void* const* sources = nullptr;
  int count = 0;
  DType dtype = DType::kF32;
  void* out = nullptr;
  DType out_dtype = DType::kF32;
  int64_t n = 0;
  double scale = 1;
};
void host_reduce(Isa isa, const HostReduce& args);

}  // namespace zpp::kernels
