// The CPU's side of kernels/gemm.h.
#pragma once

#include <cstddef>
#include <string>

#include "core/cpu_stream.h"
#include "kernels/cpu/gemm_simd.h"

namespace zpp::kernels::cpu {

/// `elements` behind `data`. Products take inputs and outputs alike by it.
inline void* offset(const void* data, int64_t elements, DType dtype) {
  return static_cast<std::byte*>(const_cast<void*>(data)) + elements * size_of(dtype);
}

/// A checked product: `count` matrices of a batch, the first one's pointers and how far apart the
/// others are.
struct GemmBatch {
  GemmProblem first;
  int64_t count = 1;
  int64_t a_step = 0, b_step = 0, c_step = 0;

  GemmProblem at(int64_t index) const;
};

/// Enqueues the product.
void gemm(CpuStream& stream, const GemmBatch& batch);

std::string gemm_path(const CpuStream& stream, DType dtype);

}  // namespace zpp::kernels::cpu
