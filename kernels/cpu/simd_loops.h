// Loop shapes that the SIMD sources share, with internal linkage for the reason given in
// simd_math.h.
#pragma once

#include "kernels/cpu/simd_math.h"

namespace zpp::kernels {

/// Sum of f(i) over [0, n) in an order that depends on n only. Four sums run side by side because
/// one would wait for the latency of the addition.
template <class A, class F>
ZPP_INLINE A sum_of(int64_t n, const F& f) {
  const int64_t q = n / 4;
  A s0 = 0, s1 = 0, s2 = 0, s3 = 0;
#pragma omp simd reduction(+ : s0, s1, s2, s3)
  for (int64_t i = 0; i < q; ++i) {
    s0 += f(i);
    s1 += f(q + i);
    s2 += f(2 * q + i);
    s3 += f(3 * q + i);
  }
  for (int64_t i = 4 * q; i < n; ++i) s0 += f(i);
  return (s0 + s1) + (s2 + s3);
}

/// out[i] (+)= f(i) over [begin, end); f may read out[i] under another name.
template <class T, class F>
ZPP_INLINE void put_each(T* out, bool accumulate, int64_t begin, int64_t end, const F& f) {
  if (accumulate) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) out[i] = store<T>(load(out[i]) + f(i));
  } else {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) out[i] = store<T>(f(i));
  }
}

}  // namespace zpp::kernels
