#include "kernels/cpu/gemm.h"

#include "kernels/cpu/gemm_onednn.h"
#include "kernels/cpu/gemm_packed.h"
#include "kernels/cpu/slots.h"

namespace zpp::kernels::cpu {

namespace {

/// Whether most products of `dtype` go to the library: bf16 where the CPU has its arithmetic, f32 with
/// AVX-512. With AVX2 alone ours is the faster one: 150 against 141 GFLOP/s over the products of a
/// GPT-2 on two cores.
bool library_is_first(DType dtype, Isa isa) {
  return onednn_computes(dtype) && (dtype == DType::kBF16 || isa >= Isa::kAvx512);
}

/// Whether the library gets this product. For short f32 sums over a transposed a (weight gradients of
/// few tokens) oneDNN takes a path that asks malloc for its workspace in every call: 100 to 500 page
/// faults each, 15 to 30 % slower than ours.
bool library_is_best(const GemmProblem& p, Isa isa) {
  constexpr int64_t kShortSum = 512;
  if (p.k == 0 || !library_is_first(p.dtype, isa)) return false;
  return p.dtype == DType::kBF16 || p.a_k == 1 || p.k > kShortSum;
}

/// For observers: by how a and b lie in memory, as the letters of BLAS say it. Of a linear layer
/// y = x w^T, nt is y, nn is dx and tn is dw.
const char* name_of(const GemmProblem& p) {
  const bool a_transposed = p.a_m == 1 && p.a_k != 1;
  const bool b_transposed = p.b_k == 1 && p.b_n != 1;
  if (a_transposed) return b_transposed ? "gemm_tt" : "gemm_tn";
  return b_transposed ? "gemm_nt" : "gemm_nn";
}

Work work_of(const GemmBatch& batch) {
  const GemmProblem& p = batch.first;
  const int64_t inputs = (p.m * p.k + p.k * p.n) * size_of(p.dtype);
  const int64_t outputs = (p.accumulate ? 2 : 1) * p.m * p.n * size_of(p.c_dtype);
  return {.bytes = static_cast<double>(batch.count * (inputs + outputs)),
          .flops = 2.0 * static_cast<double>(batch.count * p.m * p.n * p.k),
          .shape = {p.m, p.n, p.k}};
}

/// What one stream keeps for its products.
struct GemmState {
  OnednnGemm library;
  ScratchMemory scratch;
};

}  // namespace

GemmProblem GemmBatch::at(int64_t index) const {
  GemmProblem p = first;
  p.a = offset(p.a, index * a_step, p.dtype);
  p.b = offset(p.b, index * b_step, p.dtype);
  p.c = offset(p.c, index * c_step, p.c_dtype);
  return p;
}

void gemm(CpuStream& stream, const GemmBatch& batch) {
  const GemmProblem& p = batch.first;
  if (batch.count == 0 || p.m == 0 || p.n == 0) return;
  const GemmSimd& own = simd<GemmSimd>(stream);
  stream.launch(name_of(p), work_of(batch), [&stream, &own, batch](Workers& workers) {
    GemmState& state = stream.library_state<GemmState>();
    if (library_is_best(batch.first, stream.isa()) && state.library.multiply(workers, batch)) {
      return;
    }
    multiply_packed(workers, batch, own, state.scratch);
  });
}

std::string gemm_path(const CpuStream& stream, DType dtype) {
  if (library_is_first(dtype, stream.isa())) return std::string("oneDNN ") + to_string(dtype);
  const std::string isa = to_string(stream.isa());
  if (dtype == DType::kBF16) return "zpp f32 " + isa + ", bf16 widened while packing";
  return std::string("zpp ") + to_string(dtype) + " " + isa;
}

}  // namespace zpp::kernels::cpu
