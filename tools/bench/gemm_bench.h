// `zpp-bench gemm`: the rate of the products that training a GPT consists of.
#pragma once

#include <string>
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

/// One product of a linear layer y = x w^T, w (out, in).
struct LinearProduct {
  std::string name;  // for people
  enum Kind : uint8_t { kForward, kInputGradient, kWeightGradient } kind;
  int64_t tokens, in, out;

  double flops() const { return 2.0 * static_cast<double>(tokens * in * out); }
};

/// Its best rate in FLOP/s in `seconds` of trying, on random operands: weight gradients are added to
/// f32 (f64) sums, everything else is written in `dtype`.
double product_rate(Runtime& runtime, const LinearProduct& product, DType dtype, double seconds);

}  // namespace zpp
