// `zpp-bench gemm`: the rate of the products that training a GPT consists of.
#pragma once

#include <vector>

#include "core/types.h"
#include "tools/bench/measure.h"

namespace zpp {

struct GemmBench {
  int threads = 0;                            // 0: all cores
  std::vector<int64_t> widths = {768};        // model widths
  std::vector<int64_t> tokens = {256, 1024};  // rows of activations
  int64_t vocab = 50304;                      // 0: leave the head out
  std::vector<DType> dtypes = {DType::kF32, DType::kBF16};
  double seconds = 0.3;  // for each product
};

/// Prints the measured peak (one core, all threads) and, for each product, GFLOP/s and the share of
/// the peak.
/// Errors:  kInvalidArgument for sizes below 1.
void bench_gemm(const GemmBench& options, const Print& print);

}  // namespace zpp
