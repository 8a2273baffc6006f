#include "kernels/cpu/gemm.h"

#include <algorithm>
#include <vector>

#include "kernels/cpu/gemm_onednn.h"
#include "kernels/cpu/slots.h"

namespace zpp::kernels::cpu {

namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// [0, n) in `parts` equal pieces, rounded up to whole steps.
int64_t piece(int64_t n, int64_t parts, int64_t step) {
  return ceil_div(ceil_div(n, parts), step) * step;
}

void* offset(const void* data, int64_t elements, DType dtype) {
  return static_cast<std::byte*>(const_cast<void*>(data)) + elements * size_of(dtype);
}

/// Rows [m0, m1) and columns [n0, n1) of the product as a product of its own.
GemmProblem slice(const GemmProblem& p, const GemmTile& t) {
  GemmProblem part = p;
  part.m = t.m1 - t.m0;
  part.n = t.n1 - t.n0;
  part.a = offset(p.a, t.m0 * p.a_m, p.dtype);
  part.b = offset(p.b, t.n0 * p.b_n, p.dtype);
  part.c = offset(p.c, t.m0 * p.c_m + t.n0, p.c_dtype);
  if (p.bias) part.bias = offset(p.bias, t.n0, p.bias_dtype);
  return part;
}

/// A grid of tiles over a batch of products.
struct Grid {
  int64_t count, m, n, tile_m, tile_n;

  int64_t per_matrix() const { return ceil_div(m, tile_m) * ceil_div(n, tile_n); }
  int64_t size() const { return count * per_matrix(); }
  int64_t matrix(int64_t index) const { return index / per_matrix(); }
  GemmTile tile(int64_t index) const {
    const int64_t across = ceil_div(n, tile_n);
    const int64_t at = index % per_matrix();
    const int64_t m0 = at / across * tile_m, n0 = at % across * tile_n;
    return {m0, std::min(m, m0 + tile_m), n0, std::min(n, n0 + tile_n)};
  }
};

// Slices of the larger dimension: the other operand is packed again for each of them, so there are
// not more than balance needs, and none so small that this would dominate.
Grid library_grid(const GemmBatch& batch, int threads) {
  constexpr int64_t kStep = 48;  // whole register blocks for 6- and 16-wide kernels
  constexpr int64_t kMinFlops = 1 << 22;
  const GemmProblem& p = batch.first;
  const int64_t flops = 2 * p.m * p.n * p.k;
  const int64_t useful = std::max<int64_t>(1, flops / kMinFlops);
  const int64_t parts = std::min(ceil_div(2 * threads, batch.count), useful);
  if (threads == 1 || parts <= 1) return {batch.count, p.m, p.n, p.m, p.n};
  if (p.n >= p.m) return {batch.count, p.m, p.n, p.m, piece(p.n, parts, kStep)};
  return {batch.count, p.m, p.n, piece(p.m, parts, kStep), p.n};
}

// Tiles as large as the kernel takes them, but a few for each thread.
Grid own_grid(const GemmBatch& batch, const GemmSimd& simd, int threads) {
  constexpr int64_t kMinCols = 128;
  const GemmProblem& p = batch.first;
  const int64_t down = ceil_div(p.m, simd.max_rows);
  int64_t across = ceil_div(p.n, simd.max_cols);
  if (threads > 1) {
    const int64_t wanted = ceil_div(3 * threads, down * batch.count);
    across = std::max(across, std::min(wanted, ceil_div(p.n, kMinCols)));
  }
  return {batch.count, p.m, p.n, std::min(piece(p.m, down, simd.row_step), simd.max_rows),
          std::min(piece(p.n, across, simd.col_step), simd.max_cols)};
}

void run_own(Workers& workers, const GemmBatch& batch, const GemmSimd& simd,
             ScratchMemory& scratch) {
  const Grid grid = own_grid(batch, simd, workers.threads());
  std::byte* const memory = scratch.at_least(simd.scratch_bytes * workers.threads());
  run_in_slots(workers, grid.size(), [&](int64_t item, int64_t slot) {
    simd.tile(batch.at(grid.matrix(item)), grid.tile(item), memory + slot * simd.scratch_bytes);
  });
}

/// False where the library has only its reference loops for this product.
bool run_library(Workers& workers, const GemmBatch& batch, OnednnGemm& library) {
  const Grid grid = library_grid(batch, workers.threads());
  std::vector<const OnednnGemm::Compiled*> compiled;  // by tile of one matrix
  for (int64_t i = 0; i < grid.per_matrix(); ++i) {
    compiled.push_back(library.compile(slice(batch.first, grid.tile(i)), workers.threads()));
    if (compiled.back() == nullptr) return false;
  }
  run_in_slots(workers, grid.size(), [&](int64_t item, int64_t slot) {
    const GemmProblem part = slice(batch.at(grid.matrix(item)), grid.tile(item));
    library.run(*compiled[static_cast<size_t>(item % grid.per_matrix())], part, slot);
  });
  return true;
}

/// Whether the library gets the product. For short sums over a transposed a (weight gradients of
/// few tokens) oneDNN takes a path that asks malloc for its workspace in every call: 100 to 500
/// page faults each, 15 to 30 % slower than ours.
bool library_is_best(const GemmProblem& p) {
  constexpr int64_t kShortSum = 512;
  if (p.k == 0 || !onednn_computes(p.dtype)) return false;
  return p.dtype != DType::kF32 || p.a_k == 1 || p.k > kShortSum;
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
  stream.launch("gemm", [&stream, &own, batch](Workers& workers) {
    GemmState& state = stream.library_state<GemmState>();
    if (library_is_best(batch.first) && run_library(workers, batch, state.library)) return;
    run_own(workers, batch, own, state.scratch);
  });
}

std::string gemm_path(const CpuStream& stream, DType dtype) {
  if (onednn_computes(dtype)) return std::string("oneDNN ") + to_string(dtype);
  const std::string isa = to_string(stream.isa());
  if (dtype == DType::kBF16) return "zpp f32 " + isa + ", bf16 widened while packing";
  return std::string("zpp ") + to_string(dtype) + " " + isa;
}

}  // namespace zpp::kernels::cpu
