// Branch-free functions that GCC vectorises inside `#pragma omp simd` loops of the *_simd.cc files.
//
// Every function has internal linkage and is always inlined, so that no copy compiled for one
// instruction set can be linked into code for another. Each f32 bound is what
// tests/kernels/simd_math_test.cc checks; the f64 versions call the C library and serve gradient
// checks.
#pragma once

#include "core/types.h"

#define ZPP_INLINE static inline __attribute__((always_inline))

namespace zpp::kernels {

/// The type that a kernel computes in: f32 for f32 and bf16, f64 for f64.
template <class T>
struct AccumulatorOf {
  using type = float;
};
template <>
struct AccumulatorOf<double> {
  using type = double;
};
template <class T>
using Acc = typename AccumulatorOf<T>::type;

ZPP_INLINE uint32_t bits_of(float x) { return __builtin_bit_cast(uint32_t, x); }
ZPP_INLINE float from_bits(uint32_t u) { return __builtin_bit_cast(float, u); }

/// An element as the accumulator sees it.
ZPP_INLINE float load(float x) { return x; }
ZPP_INLINE float load(bf16 x) { return from_bits(static_cast<uint32_t>(x.bits) << 16); }
ZPP_INLINE double load(double x) { return x; }

/// An accumulator as element type T: store<bf16>(x) rounds half to even as to_bf16 does.
template <class T>
ZPP_INLINE T store(Acc<T> x) {
  if constexpr (sizeof(T) == sizeof(bf16)) {
    const uint32_t u = bits_of(x);
    // A NaN becomes quiet instead of rounded, which could make it an infinity.
    const uint32_t rounded = x != x ? (u | 0x400000u) : u + 0x7fffu + ((u >> 16) & 1u);
    return T{static_cast<uint16_t>(rounded >> 16)};
  } else {
    return x;
  }
}

ZPP_INLINE float sqrt_of(float x) { return __builtin_sqrtf(x); }
ZPP_INLINE double sqrt_of(double x) { return __builtin_sqrt(x); }
ZPP_INLINE float abs_of(float x) { return __builtin_fabsf(x); }

/// x = n log 2 + r with |r| <= log(2) / 2, n an integer held in both forms.
struct Reduced {
  float r;
  int32_t n;
};
ZPP_INLINE Reduced reduce_log2(float x) {
  // Adding 1.5 * 2^23 leaves round(x / log 2) in the low bits of the mantissa.
  constexpr float kMagic = 12582912.0f;
  const float shifted = x * 1.44269504f + kMagic;
  const float n = shifted - kMagic;
  const float r = (x - n * 0.693145752f) - n * 1.42860677e-6f;
  return {r, static_cast<int32_t>(bits_of(shifted) - bits_of(kMagic))};
}

/// exp(r) - 1 for |r| <= log(2) / 2.
ZPP_INLINE float expm1_reduced(float r) {
  float q = 0.00139262508f;
  q = q * r + 0.00836323288f;
  q = q * r + 0.0416665542f;
  q = q * r + 0.166665767f;
  q = q * r + 0.5f;
  return q * r * r + r;
}

ZPP_INLINE float power_of_2(int32_t n) { return from_bits(static_cast<uint32_t>(n + 127) << 23); }

/// exp(x), relative error at most 1.5e-7 where the result is a normal number; 0 at -inf, inf
/// from 88.73 on, NaN at NaN.
ZPP_INLINE float exp_f32(float x) {
  x = x > 89.0f ? 89.0f : x;
  x = x < -104.0f ? -104.0f : x;
  const Reduced p = reduce_log2(x);
  // Two factors reach results beyond one normal power of two on either side.
  const int32_t half = p.n >> 1;
  return (expm1_reduced(p.r) + 1.0f) * power_of_2(half) * power_of_2(p.n - half);
}

/// exp(x) - 1 for |x| <= 80, relative error at most 2.5e-7.
ZPP_INLINE float expm1_f32(float x) {
  const Reduced p = reduce_log2(x);
  const float scale = power_of_2(p.n);
  return expm1_reduced(p.r) * scale + (scale - 1.0f);
}

/// erf(x), relative error at most 3e-7, NaN at NaN. With -log(1 - erf(x)) = x p(x) on [0, 4].
ZPP_INLINE float erf_f32(float x) {
  const float a = abs_of(x) > 4.0f ? 4.0f : abs_of(x);
  float p = -1.01397727e-7f;
  p = p * a + 2.55876506e-6f;
  p = p * a - 2.87435818e-5f;
  p = p * a + 0.000188092176f;
  p = p * a - 0.000771879746f;
  p = p * a + 0.00182303072f;
  p = p * a - 0.000258150395f;
  p = p * a - 0.019121386f;
  p = p * a + 0.102773361f;
  p = p * a + 0.636619567f;
  p = p * a + 1.12837917f;
  return __builtin_copysignf(expm1_f32(-a * p), x);
}

/// log(x), relative error at most 1.5e-7; -inf at 0, NaN below 0, inf at inf, NaN at NaN.
ZPP_INLINE float log_f32(float x) {
  const bool tiny = x < 1.17549435e-38f;
  const uint32_t u = bits_of(tiny ? x * 8388608.0f : x);
  // The mantissa moves into [sqrt(1/2), sqrt(2)).
  const int32_t n = static_cast<int32_t>(u - 0x3f3504f3u) >> 23;
  const float f = from_bits(u - (static_cast<uint32_t>(n) << 23)) - 1.0f;
  float p = -0.0790274377f;
  p = p * f + 0.126223198f;
  p = p * f - 0.129981838f;
  p = p * f + 0.142144959f;
  p = p * f - 0.166412815f;
  p = p * f + 0.200010451f;
  p = p * f - 0.250003064f;
  p = p * f + 0.333333307f;
  const float e = static_cast<float>(n - (tiny ? 23 : 0));
  const float log1p = p * f * f * f - 0.5f * f * f + f;
  const float y = e * 0.693145752f + (e * 1.42860677e-6f + log1p);
  const float finite = x < __builtin_inff() ? y : x;
  const float positive = x == 0.0f ? -__builtin_inff() : finite;
  return x < 0.0f ? __builtin_nanf("") : positive;
}

// By argument type, for templates.
ZPP_INLINE float exp_of(float x) { return exp_f32(x); }
ZPP_INLINE double exp_of(double x) { return __builtin_exp(x); }
ZPP_INLINE float erf_of(float x) { return erf_f32(x); }
ZPP_INLINE double erf_of(double x) { return __builtin_erf(x); }
ZPP_INLINE float log_of(float x) { return log_f32(x); }
ZPP_INLINE double log_of(double x) { return __builtin_log(x); }

}  // namespace zpp::kernels
