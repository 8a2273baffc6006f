// Matrix products by oneDNN, single-threaded, on slices that our own workers take.
#pragma once

#include <memory>

#include "core/workers.h"
#include "kernels/cpu/gemm_simd.h"

namespace zpp::kernels::cpu {

struct GemmBatch;

/// Compiled products and the memory they need, one per stream. Debian's oneDNN threads through
/// libgomp, whose idle threads spin and stall a loaded machine; so each of our threads runs it
/// alone on a slice.
class OnednnGemm {
 public:
  OnednnGemm();
  ~OnednnGemm();

  /// Computes all products of the batch. False, with nothing done, where the library has only its
  /// reference loops for them.
  /// Errors: kInternal with the library's words
  bool multiply(Workers& workers, const GemmBatch& batch);

 private:
  struct State;
  /// A product compiled for slices of one shape, strides and dtypes.
  struct Compiled;

  /// For up to `slots` threads at a time; null for reference loops. Before the parallel part only.
  Compiled* compile(const GemmProblem& p, int slots);
  void run(const Compiled& compiled, const GemmProblem& p, int64_t slot) const;

  std::unique_ptr<State> state_;
};

/// Whether oneDNN computes products of `dtype` with the CPU's own arithmetic.
bool onednn_computes(DType dtype);

}  // namespace zpp::kernels::cpu
