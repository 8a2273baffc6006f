// Branch-free functions for the *_simd.cc files. Those of an argument type F take a float or a vector
// of simd_vector.h; those of float are vectorised by GCC inside `#pragma omp simd` loops.
//
// Every function has internal linkage and is always inlined, so that no copy compiled for one
// instruction set can be linked into code for another. Each f32 bound is what
// tests/kernels/simd_math_test.cc checks; the f64 versions call the C library and serve gradient
// checks.
#pragma once

#include "core/types.h"

#define ZPP_INLINE static inline __attribute__((always_inline))
// The same for members, and after the parameters of a lambda.
#define ZPP_MEMBER inline __attribute__((always_inline))
#define ZPP_LAMBDA __attribute__((always_inline))

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
ZPP_INLINE double abs_of(double x) { return __builtin_fabs(x); }
/// The smaller and the larger of the two; a NaN x stays one.
ZPP_INLINE float min_of(float limit, float x) { return limit < x ? limit : x; }
ZPP_INLINE float max_of(float limit, float x) { return limit > x ? limit : x; }
ZPP_INLINE double min_of(double limit, double x) { return limit < x ? limit : x; }
ZPP_INLINE double max_of(double limit, double x) { return limit > x ? limit : x; }

/// a where x has a sign, else b.
ZPP_INLINE float by_sign(float x, float a, float b) { return __builtin_signbit(x) ? a : b; }
ZPP_INLINE double by_sign(double x, double a, double b) { return __builtin_signbit(x) ? a : b; }

/// The number whose bits are those of x shifted up to the exponent.
ZPP_INLINE float exponent_from_low_bits(float x) { return from_bits(bits_of(x) << 23); }

/// Whether results are going to be rounded to bf16, so that shorter series do.
template <class F>
inline constexpr bool kForBf16 = false;

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
ZPP_INLINE float log_of(float x) { return log_f32(x); }
ZPP_INLINE double log_of(double x) { return __builtin_log(x); }

/// A power of two as the product of two numbers, so that a sum with it is one instruction.
template <class F>
struct PowerOf2 {
  F fraction;  // sqrt(1/2) to sqrt(2)
  F scale;     // 2^n; 0 for n = -127, inf for n = 128
};

/// 2^r for |r| <= 1/2, 1 at 0; relative error at most 2e-7, for bf16 3e-6.
template <class F>
ZPP_INLINE F exp2_reduced(F r) {
  if constexpr (kForBf16<F>) {
    F p = r * 0.00958283246f + 0.0559065901f;
    p = p * r + 0.240241006f;
    p = p * r + 0.693124175f;
    return p * r + 1.0f;
  } else {
    F p = r * 0.00132646866f + 0.00967153441f;
    p = p * r + 0.0555073395f;
    p = p * r + 0.240222424f;
    p = p * r + 0.693147004f;
    return p * r + 1.0f;
  }
}

/// Adding it to w rounds to an integer n, and leaves n + 127 in the low bits of the mantissa:
/// shifted up they are the power of two.
inline constexpr float kToPowerOf2 = 12583039.0f;  // 1.5 * 2^23 + 127

/// 2^w for w from -127 (which gives 0) to 128 (inf), relative error as exp2_reduced(); NaN at NaN.
/// Instructions: 9, for bf16 8.
template <class F>
ZPP_INLINE PowerOf2<F> exp2_f32(F w) {
  const F shifted = w + kToPowerOf2;
  return {exp2_reduced(w - (shifted - kToPowerOf2)), exponent_from_low_bits(shifted)};
}

/// exp(x) for x <= 0, 0 from -87.7 down, relative error at most 1e-7 |x| more than that of
/// exp2_reduced(); NaN at NaN. Instructions: 11, for bf16 10.
template <class F>
ZPP_INLINE F exp_negative(F x) {
  constexpr float kLog2E = 1.44269504f;
  x = max_of(-88.0f, x);
  const F shifted = x * kLog2E + kToPowerOf2;
  const F r = x * kLog2E - (shifted - kToPowerOf2);
  return exp2_reduced(r) * exponent_from_low_bits(shifted);
}
ZPP_INLINE double exp_negative(double x) { return __builtin_exp(x); }

/// 1 + 2^w, the denominator of a sigmoid. It becomes inf at w = 128, so that the quotient is exactly
/// 0 from there on. Instructions: 12, for bf16 11.
template <class F>
ZPP_INLINE F one_plus_exp2(F w) {
  const PowerOf2<F> e = exp2_f32(max_of(-127.0f, min_of(128.0f, w)));
  return e.fraction * e.scale + 1.0f;
}
ZPP_INLINE double one_plus_exp2(double w) { return 1.0 + __builtin_exp2(w); }

/// Where the normal distribution is taken to end: both functions below are 0 there in f32.
inline constexpr float kNormalEnd = 13.26f;

/// exp(-a^2 / 2) for a up to kNormalEnd, relative error at most 1e-7 a^2 more than that of
/// exp2_reduced(). Instructions: 12, for bf16 11.
template <class F>
ZPP_INLINE F normal_bell(F a) {
  const PowerOf2<F> e = exp2_f32(a * a * -0.721347520f);
  return e.fraction * e.scale;
}
ZPP_INLINE double normal_bell(double a) { return __builtin_exp(-0.5 * a * a); }

/// Phi(-a) = bell t p(t), t = 1 / (1 + 0.3 a), for a from 0 to kNormalEnd and its bell; adds to the
/// relative error of the bell 4e-7, for bf16 2e-5. Instructions: 11, one of them a division, for bf16
/// 9.
template <class F>
ZPP_INLINE F normal_above(F a, F bell) {
  const F t = 1.0f / (a * 0.3f + 1.0f);
  if constexpr (kForBf16<F>) {
    F p = t * -0.0770980865f + 0.216038868f;
    p = p * t - 0.0169499032f;
    p = p * t + 0.14419724f;
    p = p * t + 0.113741741f;
    p = p * t + 0.12007425f;
    return p * t * bell;
  } else {
    F p = t * 0.0356750153f - 0.157204047f;
    p = p * t + 0.20635511f;
    p = p * t - 0.053685043f;
    p = p * t + 0.128562316f;
    p = p * t + 0.0999132991f;
    p = p * t + 0.120753981f;
    p = p * t + 0.119629294f;
    return p * t * bell;
  }
}
ZPP_INLINE double normal_above(double a, double) {
  return 0.5 * __builtin_erfc(a * 0.7071067811865476);
}

}  // namespace zpp::kernels
