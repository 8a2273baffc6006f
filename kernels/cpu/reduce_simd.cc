#include "kernels/cpu/reduce_simd.h"

#include "kernels/cpu/simd_loops.h"

namespace zpp::kernels {
namespace ZPP_ISA {
namespace {

template <class T>
double sum_squares(const void* data, int64_t begin, int64_t end) {
  const T* x = static_cast<const T*>(data) + begin;
  return sum_of<double>(end - begin, [=](int64_t i) {
    const auto value = static_cast<double>(load(x[i]));
    return value * value;
  });
}

template <class T>
bool any_nonfinite(const void* data, int64_t begin, int64_t end) {
  const T* x = static_cast<const T*>(data) + begin;
  // 0 times a finite number is 0, else NaN, and a NaN stays in the sum.
  return sum_of<Acc<T>>(end - begin, [=](int64_t i) { return Acc<T>{0} * load(x[i]); }) !=
         Acc<T>{0};
}

template <class T>
void sum_rows(const void* data, int64_t rows, int64_t stride, void* out, bool accumulate,
              int64_t begin, int64_t end) {
  using A = Acc<T>;
  // Wide enough to read memory in long runs, small enough for the first-level cache.
  constexpr int64_t kTile = 1024;
  double sums[kTile];
  for (int64_t tile = begin; tile < end; tile += kTile) {
    const int64_t n = end - tile < kTile ? end - tile : kTile;
    for (int64_t i = 0; i < n; ++i) sums[i] = 0;
    const T* x = static_cast<const T*>(data) + tile;
    int64_t row = 0;
    for (; row + 4 <= rows; row += 4) {
      const T* a = x + row * stride;
      const T* b = a + stride;
      const T* c = b + stride;
      const T* d = c + stride;
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) {
        sums[i] += static_cast<double>((load(a[i]) + load(b[i])) + (load(c[i]) + load(d[i])));
      }
    }
    for (; row < rows; ++row) {
      const T* a = x + row * stride;
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) sums[i] += static_cast<double>(load(a[i]));
    }
    put_each(static_cast<A*>(out) + tile, accumulate, 0, n,
             [&](int64_t i) { return static_cast<A>(sums[i]); });
  }
}

}  // namespace
}  // namespace ZPP_ISA

ZPP_DEFINE_SIMD(ReduceSimd, {sum_squares<float>, sum_squares<bf16>, sum_squares<double>},
                {any_nonfinite<float>, any_nonfinite<bf16>, any_nonfinite<double>},
                {sum_rows<float>, sum_rows<bf16>, sum_rows<double>})

}  // namespace zpp::kernels
