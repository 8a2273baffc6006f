// Blocks of vectors of the instruction set being compiled, and loops over arrays of f32 or bf16 that
// hand them to a function of numbers: for *_simd.cc files only.
//
// A block is four vectors that go through every operation side by side. The functions of
// simd_math.h are chains of some 70 cycles, more than a processor looks ahead; one vector after the
// other they take up to twice as long.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/simd_math.h"

namespace zpp::kernels {
namespace ZPP_ISA {

#ifdef __AVX512F__
constexpr int kWidth = 16;
#else
constexpr int kWidth = 8;
#endif

typedef float VF __attribute__((vector_size(4 * kWidth)));
typedef uint32_t VU __attribute__((vector_size(4 * kWidth)));
typedef int32_t VI __attribute__((vector_size(4 * kWidth)));
typedef uint16_t VH __attribute__((vector_size(2 * kWidth)));
typedef float VFUnaligned __attribute__((vector_size(4 * kWidth), aligned(2), may_alias));
typedef uint32_t VUUnaligned __attribute__((vector_size(4 * kWidth), aligned(2), may_alias));
typedef uint16_t VHUnaligned __attribute__((vector_size(2 * kWidth), aligned(2), may_alias));

using kernels::abs_of, kernels::bits_of, kernels::by_sign, kernels::from_bits;
using kernels::exponent_from_low_bits, kernels::max_of, kernels::min_of;
using kernels::sqrt_of;

ZPP_INLINE VU bits_of(VF x) { return reinterpret_cast<VU>(x); }
ZPP_INLINE VF from_bits(VU u) { return reinterpret_cast<VF>(u); }

// GCC makes two instructions of minimum and maximum when they are written as comparisons. The
// masked forms for AVX-512 are those whose header compiles without warnings.
#ifdef __AVX512F__
ZPP_INLINE VF smaller(VF a, VF b) { return _mm512_maskz_min_ps(0xffff, a, b); }
ZPP_INLINE VF larger(VF a, VF b) { return _mm512_maskz_max_ps(0xffff, a, b); }
ZPP_INLINE VF sqrt_of(VF x) { return _mm512_maskz_sqrt_ps(0xffff, x); }
ZPP_INLINE VF fma_of(VF a, VF b, VF c) { return _mm512_fmadd_ps(a, b, c); }
ZPP_INLINE VF float_of(VU u) { return __builtin_convertvector(u, VF); }
ZPP_INLINE VF blend_by_sign(VF x, VF a, VF b) { return reinterpret_cast<VI>(x) < 0 ? a : b; }
#else
ZPP_INLINE VF smaller(VF a, VF b) { return _mm256_min_ps(a, b); }
ZPP_INLINE VF larger(VF a, VF b) { return _mm256_max_ps(a, b); }
ZPP_INLINE VF sqrt_of(VF x) { return _mm256_sqrt_ps(x); }
ZPP_INLINE VF fma_of(VF a, VF b, VF c) { return _mm256_fmadd_ps(a, b, c); }
/// Rounded once, as the conversion of a number: both halves are exact.
ZPP_INLINE VF float_of(VU u) {
  const VF high = __builtin_convertvector(reinterpret_cast<VI>(u >> 16), VF);
  const VF low = __builtin_convertvector(reinterpret_cast<VI>(u & 0xffffu), VF);
  return fma_of(high, VF{} + 65536.0f, low);
}
ZPP_INLINE VF blend_by_sign(VF x, VF a, VF b) { return _mm256_blendv_ps(b, a, x); }
#endif
ZPP_INLINE VF float_of(VI i) { return __builtin_convertvector(i, VF); }

/// Vectors that go side by side; T (float or bf16) is what results are rounded to.
template <class T>
struct Block {
  VF v[4];
};
constexpr int kVectors = 4;
constexpr int kBlock = kVectors * kWidth;

/// f of the vectors of each block. No loop, so that GCC keeps all of them in registers.
template <class T, class F, class... Blocks>
ZPP_INLINE Block<T> each(const F& f, const Block<T>& x, const Blocks&... more) {
  return {{f(x.v[0], more.v[0]...), f(x.v[1], more.v[1]...), f(x.v[2], more.v[2]...),
           f(x.v[3], more.v[3]...)}};
}

#define ZPP_BLOCK_OPERATOR(op)                                            \
  template <class T>                                                      \
  ZPP_INLINE Block<T> operator op(const Block<T>& a, const Block<T>& b) { \
    return each([](VF x, VF y) ZPP_LAMBDA { return x op y; }, a, b);      \
  }                                                                       \
  template <class T>                                                      \
  ZPP_INLINE Block<T> operator op(const Block<T>& a, float b) {           \
    return each([=](VF x) ZPP_LAMBDA { return x op b; }, a);              \
  }                                                                       \
  template <class T>                                                      \
  ZPP_INLINE Block<T> operator op(float a, const Block<T>& b) {           \
    return each([=](VF y) ZPP_LAMBDA { return a op y; }, b);              \
  }
ZPP_BLOCK_OPERATOR(+)
ZPP_BLOCK_OPERATOR(-)
ZPP_BLOCK_OPERATOR(*)
ZPP_BLOCK_OPERATOR(/)
#undef ZPP_BLOCK_OPERATOR

// The functions of simd_math.h on blocks.
template <class T>
ZPP_INLINE Block<T> abs_of(const Block<T>& x) {
  return each([](VF a) ZPP_LAMBDA { return from_bits(bits_of(a) & 0x7fffffffu); }, x);
}
template <class T>
ZPP_INLINE Block<T> min_of(float limit, const Block<T>& x) {
  return each([=](VF a) ZPP_LAMBDA { return smaller(VF{} + limit, a); }, x);
}
template <class T>
ZPP_INLINE Block<T> max_of(float limit, const Block<T>& x) {
  return each([=](VF a) ZPP_LAMBDA { return larger(VF{} + limit, a); }, x);
}
template <class T>
ZPP_INLINE Block<T> max_of(const Block<T>& limit, const Block<T>& x) {
  return each([](VF l, VF a) ZPP_LAMBDA { return larger(l, a); }, limit, x);
}
template <class T>
ZPP_INLINE Block<T> by_sign(const Block<T>& x, const Block<T>& a, const Block<T>& b) {
  return each([](VF s, VF p, VF q) ZPP_LAMBDA { return blend_by_sign(s, p, q); }, x, a, b);
}
template <class T>
ZPP_INLINE Block<T> exponent_from_low_bits(const Block<T>& x) {
  return each([](VF a) ZPP_LAMBDA { return from_bits(bits_of(a) << 23); }, x);
}

/// Lanes added in a fixed order.
ZPP_INLINE float sum_of_lanes(VF x) {
#ifdef __AVX512F__
  const __m256 half = _mm256_add_ps(_mm512_maskz_extractf32x8_ps(0xff, x, 0),
                                    _mm512_maskz_extractf32x8_ps(0xff, x, 1));
#else
  const __m256 half = x;
#endif
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return two[0] + two[1];
}
template <class T>
ZPP_INLINE float sum_of(const Block<T>& x) {
  return sum_of_lanes((x.v[0] + x.v[1]) + (x.v[2] + x.v[3]));
}

template <bool kStream>
ZPP_INLINE void put(void* to, VU u) {
  if constexpr (kStream) {
#ifdef __AVX512F__
    _mm512_stream_si512(static_cast<__m512i*>(to), reinterpret_cast<__m512i>(u));
#else
    _mm256_stream_si256(static_cast<__m256i*>(to), reinterpret_cast<__m256i>(u));
#endif
  } else {
    *static_cast<VUUnaligned*>(to) = u;
  }
}

/// Half to even at bit 16. A NaN from arithmetic on bf16 numbers has a lower half of zeros and
/// stays one; kAnyNaN keeps every quiet NaN.
template <bool kAnyNaN>
ZPP_INLINE VU rounded(VF x) {
  const VU u = bits_of(x);
  VU up = 0x7fffu + ((u >> 16) & 1u);
  if constexpr (kAnyNaN) up &= reinterpret_cast<VU>(x == x);
  return u + up;
}

// A bf16 is the upper half of an f32, so a vector of them splits into its even elements (shifted up)
// and its odd ones (lower half cleared) in two instructions, and goes together again in three.
// load() and store() of bf16 keep them in that order, which element-wise functions do not mind;
// the *_in_order ones, for functions that mix dtypes, do not, and cost more.

ZPP_INLINE VF load_vector(const float* from) { return *reinterpret_cast<const VFUnaligned*>(from); }
/// Their bits, each in the lower half of a lane.
ZPP_INLINE VU widened(const bf16* from) {
#ifdef __AVX512F__
  const auto half = _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(from));
  return reinterpret_cast<VU>(_mm512_maskz_cvtepu16_epi32(0xffff, half));
#else
  const auto half = _mm_loadu_si128(reinterpret_cast<const __m128i_u*>(from));
  return reinterpret_cast<VU>(_mm256_cvtepu16_epi32(half));
#endif
}
ZPP_INLINE VF load_vector(const bf16* from) { return from_bits(widened(from) << 16); }
template <class T>
ZPP_INLINE Block<T> load_in_order(const float* from) {
  return {{load_vector(from), load_vector(from + kWidth), load_vector(from + 2 * kWidth),
           load_vector(from + 3 * kWidth)}};
}
template <class T>
ZPP_INLINE Block<T> load_in_order(const bf16* from) {
  return {{load_vector(from), load_vector(from + kWidth), load_vector(from + 2 * kWidth),
           load_vector(from + 3 * kWidth)}};
}
ZPP_INLINE Block<float> load_block(const float* from) { return load_in_order<float>(from); }
ZPP_INLINE Block<bf16> load_block(const bf16* from) {
  const VU first = *reinterpret_cast<const VUUnaligned*>(from);
  const VU second = *reinterpret_cast<const VUUnaligned*>(from + 2 * kWidth);
  return {{from_bits(first << 16), from_bits(first & 0xffff0000u), from_bits(second << 16),
           from_bits(second & 0xffff0000u)}};
}

template <bool kStream = false>
ZPP_INLINE void store_block(float* to, const Block<float>& x) {
  put<kStream>(to, bits_of(x.v[0]));
  put<kStream>(to + kWidth, bits_of(x.v[1]));
  put<kStream>(to + 2 * kWidth, bits_of(x.v[2]));
  put<kStream>(to + 3 * kWidth, bits_of(x.v[3]));
}
ZPP_INLINE VU joined(VF even, VF odd) {
  return (rounded<false>(even) >> 16) | (rounded<false>(odd) & 0xffff0000u);
}
template <bool kStream = false>
ZPP_INLINE void store_block(bf16* to, const Block<bf16>& x) {
  put<kStream>(to, joined(x.v[0], x.v[1]));
  put<kStream>(to + 2 * kWidth, joined(x.v[2], x.v[3]));
}
template <class T>
ZPP_INLINE void store_in_order(float* to, const Block<T>& x) {
  store_block(to, Block<float>{{x.v[0], x.v[1], x.v[2], x.v[3]}});
}
ZPP_INLINE void store_vectors(bf16* to, VF x, VF y) {
  const VU a = rounded<true>(x) >> 16, b = rounded<true>(y) >> 16;
#ifdef __AVX512F__
  *reinterpret_cast<VHUnaligned*>(to) = __builtin_convertvector(a, VH);
  *reinterpret_cast<VHUnaligned*>(to + kWidth) = __builtin_convertvector(b, VH);
#else
  const __m256i packed =
      _mm256_packus_epi32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b));
  put<false>(to, reinterpret_cast<VU>(_mm256_permute4x64_epi64(packed, 0xd8)));
#endif
}
template <class T>
ZPP_INLINE void store_in_order(bf16* to, const Block<T>& x) {
  store_vectors(to, x.v[0], x.v[1]);
  store_vectors(to + 2 * kWidth, x.v[2], x.v[3]);
}

}  // namespace ZPP_ISA

template <>
inline constexpr bool kForBf16<ZPP_ISA::Block<bf16>> = true;

}  // namespace zpp::kernels
