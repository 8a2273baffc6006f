#include "kernels/cpu/reduce_simd.h"

#include "kernels/cpu/simd_vector.h"

namespace zpp::kernels {
namespace ZPP_ISA {
namespace {

typedef double VD __attribute__((vector_size(4 * kWidth)));

/// The lanes of x as f64.
struct Doubles {
  VD low, high;
};
ZPP_INLINE Doubles doubles_of(VF x) {
#ifdef __AVX512F__
  return {_mm512_maskz_cvtps_pd(0xff, _mm512_maskz_extractf32x8_ps(0xff, x, 0)),
          _mm512_maskz_cvtps_pd(0xff, _mm512_maskz_extractf32x8_ps(0xff, x, 1))};
#else
  return {_mm256_cvtps_pd(_mm256_castps256_ps128(x)), _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1))};
#endif
}
ZPP_INLINE double sum_of_doubles(VD x) {
  double sum = 0;
  for (int i = 0; i < kWidth / 2; ++i) sum += x[i];
  return sum;
}

/// Calls f with vectors from four places of the array that move on together, which memory serves
/// faster than one, and returns how many elements that were.
template <class T, class F>
ZPP_INLINE int64_t in_four_streams(const T* x, int64_t n, const F& f) {
  const int64_t q = n / 4 / kWidth * kWidth;
  for (int64_t i = 0; i < q; i += kWidth) {
    f(load_vector(x + i), load_vector(x + q + i), load_vector(x + 2 * q + i),
      load_vector(x + 3 * q + i));
  }
  return 4 * q;
}

ZPP_INLINE void add_squares(VF x, Doubles& sums) {
  const Doubles d = doubles_of(x);
  sums.low += d.low * d.low;
  sums.high += d.high * d.high;
}

/// Instructions for a vector of f32: 5, for bf16 7; conversions to f64 take two cycles.
template <class T>
double sum_squares(const void* data, int64_t begin, int64_t end) {
  const T* x = static_cast<const T*>(data) + begin;
  const int64_t n = end - begin;
  double total = 0;
  int64_t i = 0;
  if constexpr (sizeof(T) != sizeof(double)) {
    Doubles a{}, b{}, c{}, d{};
    i = in_four_streams(x, n, [&](VF p, VF q, VF r, VF s) ZPP_LAMBDA {
      add_squares(p, a);
      add_squares(q, b);
      add_squares(r, c);
      add_squares(s, d);
    });
    const VD low = (a.low + b.low) + (c.low + d.low);
    const VD high = (a.high + b.high) + (c.high + d.high);
    total = sum_of_doubles(low + high);
  }
  for (; i < n; ++i) {
    const auto value = static_cast<double>(load(x[i]));
    total += value * value;
  }
  return total;
}

/// Instructions for a vector of f32: 1, for bf16 3.
template <class T>
bool any_nonfinite(const void* data, int64_t begin, int64_t end) {
  const T* x = static_cast<const T*>(data) + begin;
  const int64_t n = end - begin;
  // 0 times a finite number is 0, else NaN, and a NaN stays in the sum.
  Acc<T> sum = 0;
  int64_t i = 0;
  if constexpr (sizeof(T) != sizeof(double)) {
    VF a{}, b{}, c{}, d{};
    i = in_four_streams(x, n, [&](VF p, VF q, VF r, VF s) ZPP_LAMBDA {
      a += p * 0.0f;
      b += q * 0.0f;
      c += r * 0.0f;
      d += s * 0.0f;
    });
    sum = sum_of_lanes((a + b) + (c + d));
  }
  for (; i < n; ++i) sum += load(x[i]) * Acc<T>{0};
  return sum != Acc<T>{0};
}

/// sums[i] += the sum of column i of `count` rows, four or one.
template <class T, int kRows>
ZPP_INLINE void add_rows(const T* x, int64_t stride, int64_t n, double* sums) {
  static_assert(kRows == 1 || kRows == 4);
  const T* a = x;
  const T* b = x + (kRows > 1 ? stride : 0);
  const T* c = b + (kRows > 1 ? stride : 0);
  const T* d = c + (kRows > 1 ? stride : 0);
  int64_t i = 0;
  if constexpr (sizeof(T) != sizeof(double)) {
    for (; i + kWidth <= n; i += kWidth) {
      VF sum = load_vector(a + i);
      if constexpr (kRows == 4) {
        sum = (sum + load_vector(b + i)) + (load_vector(c + i) + load_vector(d + i));
      }
      const Doubles both = doubles_of(sum);
      *reinterpret_cast<VD*>(sums + i) += both.low;
      *reinterpret_cast<VD*>(sums + i + kWidth / 2) += both.high;
    }
  }
  for (; i < n; ++i) {
    Acc<T> sum = load(a[i]);
    if constexpr (kRows == 4) sum = (sum + load(b[i])) + (load(c[i]) + load(d[i]));
    sums[i] += static_cast<double>(sum);
  }
}

/// Instructions for four vectors, one of each row: 10, for bf16 18.
template <class T>
void sum_rows(const void* data, int64_t rows, int64_t stride, void* out, bool accumulate,
              int64_t begin, int64_t end) {
  using A = Acc<T>;
  // Wide enough to read memory in long runs, small enough for the first-level cache.
  constexpr int64_t kTile = 2048;
  alignas(64) double sums[kTile];
  for (int64_t tile = begin; tile < end; tile += kTile) {
    const int64_t n = end - tile < kTile ? end - tile : kTile;
    for (int64_t i = 0; i < n; ++i) sums[i] = 0;
    const T* x = static_cast<const T*>(data) + tile;
    int64_t row = 0;
    for (; row + 4 <= rows; row += 4) add_rows<T, 4>(x + row * stride, stride, n, sums);
    for (; row < rows; ++row) add_rows<T, 1>(x + row * stride, stride, n, sums);
    A* to = static_cast<A*>(out) + tile;
    for (int64_t i = 0; i < n; ++i) to[i] = (accumulate ? to[i] : A{0}) + static_cast<A>(sums[i]);
  }
}

}  // namespace
}  // namespace ZPP_ISA

ZPP_DEFINE_SIMD(ReduceSimd, {sum_squares<float>, sum_squares<bf16>, sum_squares<double>},
                {any_nonfinite<float>, any_nonfinite<bf16>, any_nonfinite<double>},
                {sum_rows<float>, sum_rows<bf16>, sum_rows<double>})

}  // namespace zpp::kernels
