// Matrix products by oneDNN, single-threaded, on slices that our own workers take.
#pragma once

#include <memory>

#include "kernels/cpu/gemm_simd.h"

namespace zpp::kernels::cpu {

/// Compiled products and the memory they need, one per stream. Debian's oneDNN threads through
/// libgomp, whose idle threads spin and stall a loaded machine; so each of our threads runs it
/// alone on a slice.
class OnednnGemm {
 public:
  OnednnGemm();
  ~OnednnGemm();

  /// A product compiled for slices of one shape, strides and dtypes.
  struct Compiled;

  /// Finds or compiles the product of `p.m` x `p.n` x `p.k` with the strides and dtypes of `p` (its
  /// pointers do not matter), for up to `slots` threads at a time. Null where the library offers
  /// only its reference loops. Not thread-safe: call it before the parallel part.
  Compiled* compile(const GemmProblem& p, int slots);

  /// Computes `p`, a problem that `compiled` was compiled for. Safe from several threads with
  /// different slots.
  void run(const Compiled& compiled, const GemmProblem& p, int64_t slot) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Whether oneDNN computes products of `dtype` with the CPU's own arithmetic.
bool onednn_computes(DType dtype);

}  // namespace zpp::kernels::cpu
