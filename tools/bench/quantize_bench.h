// `zpp-bench kernels` and `comm --quantized`: block quantization, which runs on one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "core/runtime.h"
#include "tools/bench/measure.h"

namespace zpp {

/// Prints memcpy's bandwidth on one thread and, for encoding, decoding and their fused forms on arrays
/// of `bytes` (by default they do not fit the caches), time in ms, GB/s of the bytes that they have
/// to read and write, and the share of memcpy in %.
void bench_quantize(Runtime& runtime, const std::vector<DType>& dtypes, double seconds,
                    const Print& print, int64_t bytes = 64 << 20);

}  // namespace zpp
