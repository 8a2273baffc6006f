// `zpp-bench kernels`: every kernel family on arrays that do not fit the caches.
#pragma once

#include <vector>

#include "core/types.h"
#include "tools/bench/measure.h"

namespace zpp {

struct KernelBench {
  int threads = 0;      // 0: all cores
  int64_t rows = 4096;  // tokens
  int64_t width = 768;
  int64_t vocab = 50304;
  int64_t context = 256;  // tokens of a sequence, for attention and rotary positions
  int64_t heads = 12;
  std::vector<DType> dtypes = {DType::kF32, DType::kBF16};
  double seconds = 0.2;  // for each kernel
};

/// Prints memcpy's bandwidth and, for each kernel, time, GB/s of the bytes that it has to read and
/// write, the share of memcpy; which of the two limits is further away, memory at memcpy's rate or
/// the vector instructions that the kernel is made of, and the share of that limit; and GFLOP/s
/// where arithmetic is all that counts.
/// Errors:  kInvalidArgument for sizes that do not fit each other
void bench_kernels(const KernelBench& options, const Print& print);

}  // namespace zpp
