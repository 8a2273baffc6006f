#include "kernels/reduce.h"

#include <array>
#include <atomic>

#include "kernels/cpu/launch.h"
#include "kernels/cpu/reduce_simd.h"

namespace zpp::kernels::cpu {
namespace {

constexpr int64_t kMaxBlocks = 256;

/// At most kMaxBlocks blocks whose size depends on n only.
int64_t block_size(int64_t n) {
  constexpr int64_t kUnit = 4096;
  const int64_t least = (n + kMaxBlocks - 1) / kMaxBlocks;
  return std::max(kUnit, (least + kUnit - 1) / kUnit * kUnit);
}

}  // namespace

void sum_squares(CpuStream& stream, const View& x, const Grad& out) {
  auto* sum = simd<ReduceSimd>(stream).sum_squares[x.dtype];
  stream.launch("sum_squares", one_pass(x), [=](Workers& workers) {
    const int64_t n = x.numel();
    const int64_t size = block_size(n);
    const int64_t blocks = (n + size - 1) / size;
    std::array<double, kMaxBlocks> sums;
    workers.run(blocks, [&](int64_t block) {
      sums[static_cast<size_t>(block)] = sum(x.data, block * size, std::min(n, (block + 1) * size));
    });
    double total = 0;
    for (int64_t block = 0; block < blocks; ++block) total += sums[static_cast<size_t>(block)];
    double& target = *out.view.as<double>();
    target = out.accumulate ? target + total : total;
  });
}

void sum_rows(CpuStream& stream, const View& x, const Grad& out) {
  auto* sum = simd<ReduceSimd>(stream).sum_rows[x.dtype];
  stream.launch("sum_rows", one_pass(x, out), [=](Workers& workers) {
    const int64_t rows = x.dim(0);
    workers.parallel_for(
        x.dim(1), std::max<int64_t>(64, row_grain(rows)), [&](int64_t begin, int64_t end) {
          sum(x.data, rows, x.stride(0), out.view.data, out.accumulate, begin, end);
        });
  });
}

void any_nonfinite(CpuStream& stream, const View& x, const View& out) {
  auto* any = simd<ReduceSimd>(stream).any_nonfinite[x.dtype];
  stream.launch("any_nonfinite", one_pass(x), [=](Workers& workers) {
    std::atomic<int32_t> found{0};
    workers.parallel_for(x.numel(), kGrain, [&](int64_t begin, int64_t end) {
      if (any(x.data, begin, end)) found.store(1, std::memory_order_relaxed);
    });
    *out.as<int32_t>() = found.load();
  });
}

}  // namespace zpp::kernels::cpu
