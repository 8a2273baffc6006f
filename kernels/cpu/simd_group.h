// Groups of 32 numbers in vectors, and the codes of 4 or 8 bits that stand for them: for *_simd.cc
// files only. Numbers and codes are in order of their addresses.
//
// Instructions are counted for AVX2 and one group, without loads and stores.
#pragma once

#include <cstddef>

#include "kernels/cpu/simd_vector.h"

namespace zpp::kernels {
namespace ZPP_ISA {

constexpr int kGroup = 32;
constexpr int kGroupVectors = kGroup / kWidth;

struct Group {
  VF v[kGroupVectors];
};

/// The group of vectors f(0), f(1), ... No loop, so that GCC keeps all of them in registers.
template <class F>
ZPP_INLINE Group group_of(const F& f) {
#ifdef __AVX512F__
  return {{f(0), f(1)}};
#else
  return {{f(0), f(1), f(2), f(3)}};
#endif
}
template <class T>
ZPP_INLINE Group load_group(const T* from) {
  return group_of([=](int i) ZPP_LAMBDA { return load_vector(from + i * kWidth); });
}
ZPP_INLINE Group times(const Group& x, VF factor) {
  return group_of([&](int i) ZPP_LAMBDA { return x.v[i] * factor; });
}
ZPP_INLINE Group plus(const Group& x, const Group& y) {
  return group_of([&](int i) ZPP_LAMBDA { return x.v[i] + y.v[i]; });
}
/// x * factor, rounded: the compiler may not make one instruction of it and of an addition.
ZPP_INLINE Group rounded_product(const Group& x, VF factor) {
  Group y = times(x, factor);
#ifdef __AVX512F__
  asm("" : "+v"(y.v[0]), "+v"(y.v[1]));
#else
  asm("" : "+x"(y.v[0]), "+x"(y.v[1]), "+x"(y.v[2]), "+x"(y.v[3]));
#endif
  return y;
}

#ifdef __AVX512F__
ZPP_INLINE __m512i joined_halves(__m256i low, __m256i high) {
  return _mm512_maskz_inserti64x4(0xff, _mm512_castsi256_si512(low), high, 1);
}
#endif

template <bool kStream>
ZPP_INLINE void store_group(float* to, const Group& x) {
  for (int i = 0; i < kGroupVectors; ++i) put<kStream>(to + i * kWidth, bits_of(x.v[i]));
}
// NaNs must be those of arithmetic on numbers, see rounded().
#ifdef __AVX512F__
ZPP_INLINE __m256i as_bf16(VF x) {
  return reinterpret_cast<__m256i>(__builtin_convertvector(rounded<false>(x) >> 16, VH));
}
ZPP_INLINE VU as_bf16(VF x, VF y) {
  return reinterpret_cast<VU>(joined_halves(as_bf16(x), as_bf16(y)));
}
#else
ZPP_INLINE VU as_bf16(VF x, VF y) {
  const VU a = rounded<false>(x) >> 16, b = rounded<false>(y) >> 16;
  const __m256i pairs =
      _mm256_packus_epi32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b));
  return reinterpret_cast<VU>(_mm256_permute4x64_epi64(pairs, 0xd8));
}
#endif
template <bool kStream>
ZPP_INLINE void store_group(bf16* to, const Group& x) {
  for (int i = 0; i < kGroupVectors; i += 2) {
    put<kStream>(to + i * kWidth, as_bf16(x.v[i], x.v[i + 1]));
  }
}

// --- Magnitudes -------------------------------------------------------------------
// As unsigned integers, without their sign, numbers compare as their magnitudes do; Inf and NaN are
// above all others.

ZPP_INLINE VU larger_words(VU a, VU b) {
#ifdef __AVX512F__
  return reinterpret_cast<VU>(
      _mm512_maskz_max_epu32(0xffff, reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#else
  return reinterpret_cast<VU>(
      _mm256_max_epu32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#endif
}
ZPP_INLINE VU larger_halves(VU a, VU b) {
#ifdef __AVX512F__
  return reinterpret_cast<VU>(_mm512_maskz_max_epu16(0xffffffff, reinterpret_cast<__m512i>(a),
                                                     reinterpret_cast<__m512i>(b)));
#else
  return reinterpret_cast<VU>(
      _mm256_max_epu16(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#endif
}
ZPP_INLINE uint32_t largest_lane(VU x) {
#ifdef __AVX512F__
  const auto all = reinterpret_cast<__m512i>(x);
  const __m256i half = _mm256_max_epu32(_mm512_maskz_extracti32x8_epi32(0xff, all, 0),
                                        _mm512_maskz_extracti32x8_epi32(0xff, all, 1));
#else
  const auto half = reinterpret_cast<__m256i>(x);
#endif
  __m128i four = _mm_max_epu32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
  four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0x4e));
  four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0xb1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(four));
}

/// The largest magnitudes that each lane has seen, for numbers of type T. Instructions for a group:
/// 8, for bf16 4.
template <class T>
struct Magnitudes;
template <>
struct Magnitudes<float> {
  VU v[kGroupVectors] = {};

  ZPP_MEMBER void see(const float* from) {
    for (int i = 0; i < kGroupVectors; ++i) {
      v[i] = larger_words(v[i], bits_of(load_vector(from + i * kWidth)) & 0x7fffffffu);
    }
  }
  ZPP_MEMBER uint32_t largest() const {
    VU all = v[0];
    for (int i = 1; i < kGroupVectors; ++i) all = larger_words(all, v[i]);
    return largest_lane(all);
  }
};
template <>
struct Magnitudes<bf16> {
  VU v[kGroupVectors] = {};

  ZPP_MEMBER void see(const bf16* from) {
    for (int i = 0; i < kGroupVectors / 2; ++i) {
      const VU two = *reinterpret_cast<const VUUnaligned*>(from + i * 2 * kWidth);
      v[i] = larger_halves(v[i], two & 0x7fff7fffu);
    }
  }
  ZPP_MEMBER uint32_t largest() const {
    VU all = v[0];
    for (int i = 1; i < kGroupVectors / 2; ++i) all = larger_halves(all, v[i]);
    return largest_lane(larger_words(all << 16, all & 0xffff0000u));
  }
};

// --- Codes ------------------------------------------------------------------------

/// A group in the order that is cheapest to make codes from. That of bf16 are pairs of vectors with
/// the numbers at even and at odd places: see simd_vector.h.
ZPP_INLINE Group load_for_codes(const float* from) { return load_group(from); }
ZPP_INLINE Group load_for_codes(const bf16* from) {
  return group_of([=](int i) ZPP_LAMBDA {
    const VU two = *reinterpret_cast<const VUUnaligned*>(from + i / 2 * 2 * kWidth);
    return from_bits(i % 2 == 0 ? two << 16 : two & 0xffff0000u);
  });
}
/// Likewise, from integers of 16 bits.
ZPP_INLINE Group integers_for_codes(const int16_t* from, const float*) {
  return group_of([=](int i) ZPP_LAMBDA {
#ifdef __AVX512F__
    const auto half = _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(from + i * kWidth));
    return float_of(reinterpret_cast<VI>(_mm512_maskz_cvtepi16_epi32(0xffff, half)));
#else
    const auto half = _mm_loadu_si128(reinterpret_cast<const __m128i_u*>(from + i * kWidth));
    return float_of(reinterpret_cast<VI>(_mm256_cvtepi16_epi32(half)));
#endif
  });
}
ZPP_INLINE Group integers_for_codes(const int16_t* from, const bf16*) {
  return group_of([=](int i) ZPP_LAMBDA {
    const VU two = *reinterpret_cast<const VUUnaligned*>(from + i / 2 * 2 * kWidth);
    return float_of(reinterpret_cast<VI>(i % 2 == 0 ? two << 16 : two) >> 16);
  });
}

/// Integers of 8 bits, rounded half to even, with AVX2 in the order that packing leaves: in_order()
/// puts them right. `T`: what the group was loaded from. Instructions: 7, for bf16 9.
template <class T>
ZPP_INLINE __m256i integers_of(const Group& x) {
  constexpr bool kPairs = sizeof(T) == sizeof(bf16);
#ifdef __AVX512F__
  const auto whole = [&](int i) ZPP_LAMBDA { return _mm512_maskz_cvtps_epi32(0xffff, x.v[i]); };
  if constexpr (kPairs) {
    const __m512i odd = _mm512_maskz_slli_epi32(0xffff, whole(1), 16);
    const __m512i both = _mm512_mask_blend_epi16(0xaaaaaaaa, whole(0), odd);
    return _mm512_maskz_cvtsepi16_epi8(0xffffffff, both);
  } else {
    const __m128i low = _mm512_maskz_cvtsepi32_epi8(0xffff, whole(0));
    const __m128i high = _mm512_maskz_cvtsepi32_epi8(0xffff, whole(1));
    return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
  }
#else
  const auto whole = [&](int i) ZPP_LAMBDA { return _mm256_cvtps_epi32(x.v[i]); };
  if constexpr (kPairs) {
    const auto both = [&](int i) ZPP_LAMBDA {
      return _mm256_blend_epi16(whole(i), _mm256_slli_epi32(whole(i + 1), 16), 0xaa);
    };
    return _mm256_packs_epi16(both(0), both(2));
  } else {
    const __m256i low = _mm256_packs_epi32(whole(0), whole(1));
    const __m256i high = _mm256_packs_epi32(whole(2), whole(3));
    return _mm256_packs_epi16(low, high);
  }
#endif
}

template <class T>
ZPP_INLINE __m256i in_order(__m256i integers) {
#ifdef __AVX512F__
  return integers;
#else
  if constexpr (sizeof(T) == sizeof(bf16)) return _mm256_permute4x64_epi64(integers, 0xd8);
  return _mm256_permutevar8x32_epi32(integers, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
#endif
}
/// Pairs of integers as codes of 4 bits, first + 16 * second, each in 16 bits.
ZPP_INLINE __m256i pairs_of(__m256i integers) {
  const __m256i low = _mm256_and_si256(integers, _mm256_set1_epi8(15));
  return _mm256_maddubs_epi16(low, _mm256_set1_epi16(0x1001));
}

/// Writes the codes of a group. Instructions: those of integers_of() and 1, with 4 bits 5.
template <int kBits, class T>
ZPP_INLINE void put_codes(std::byte* to, const Group& x) {
  const __m256i integers = in_order<T>(integers_of<T>(x));
  if constexpr (kBits == 8) {
    _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(to), integers);
  } else {
    const __m256i pairs = pairs_of(integers);
    const __m256i bytes = _mm256_permute4x64_epi64(_mm256_packus_epi16(pairs, pairs), 0x08);
    _mm_storeu_si128(reinterpret_cast<__m128i_u*>(to), _mm256_castsi256_si128(bytes));
  }
}
/// The same for two groups that follow each other: 4 bits then cost 6 or 7 for both.
template <int kBits, class T>
ZPP_INLINE void put_codes_of_two(std::byte* to, const Group& x, const Group& y) {
#ifndef __AVX512F__
  if constexpr (kBits == 4) {
    const __m256i bytes =
        _mm256_packus_epi16(pairs_of(integers_of<T>(x)), pairs_of(integers_of<T>(y)));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i codes;
    if constexpr (sizeof(T) == sizeof(bf16)) {
      codes = _mm256_permutevar8x32_epi32(bytes, order);
    } else {
      // Quarters of the vectors alternate, 2 bytes each.
      const __m256i halves = _mm256_permute4x64_epi64(bytes, 0xd8);
      const __m256i by_turns =
          _mm256_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15,  //
                           0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15);
      codes = _mm256_shuffle_epi8(halves, by_turns);
    }
    return _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(to), codes);
  }
#endif
  put_codes<kBits, T>(to, x);
  put_codes<kBits, T>(to + kGroup * kBits / 8, y);
}

/// kWidth codes as numbers. Instructions: 2 (one of them comes with the load), with 4 bits 3.
template <int kBits>
ZPP_INLINE VF vector_of_codes(const std::byte* from) {
  if constexpr (kBits == 8) {
#ifdef __AVX512F__
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i_u*>(from));
    return float_of(reinterpret_cast<VI>(_mm512_maskz_cvtepi8_epi32(0xffff, bytes)));
#else
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i_u*>(from));
    return float_of(reinterpret_cast<VI>(_mm256_cvtepi8_epi32(bytes)));
#endif
  } else {
    // Each lane shifts its code to the top of the word that holds it, and down again for the sign.
    typedef uint32_t Word __attribute__((aligned(1), may_alias));
    const auto* words = reinterpret_cast<const Word*>(from);
#ifdef __AVX512F__
    const VU up = {28, 24, 20, 16, 12, 8, 4, 0, 28, 24, 20, 16, 12, 8, 4, 0};
    const __m256i low = _mm256_set1_epi32(static_cast<int>(words[0]));
    const __m256i high = _mm256_set1_epi32(static_cast<int>(words[1]));
    const auto all = reinterpret_cast<VU>(joined_halves(low, high));
#else
    const VU up = {28, 24, 20, 16, 12, 8, 4, 0};
    const VU all = VU{} + words[0];
#endif
    return float_of(reinterpret_cast<VI>(all << up) >> 28);
  }
}
template <int kBits>
ZPP_INLINE Group group_of_codes(const std::byte* from) {
  return group_of([=](int i)
                      ZPP_LAMBDA { return vector_of_codes<kBits>(from + i * kWidth * kBits / 8); });
}

/// What each of the 16 codes of 4 bits means in a block, as bf16: it is faster to look them up than
/// to compute and round every one.
class Meanings {
 public:
  ZPP_MEMBER explicit Meanings(float scale) {
#ifdef __AVX512F__
    const VF codes = {0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1};
    const __m256i all = as_bf16(codes * scale);
#else
    const VF first = {0, 1, 2, 3, 4, 5, 6, 7}, second = {-8, -7, -6, -5, -4, -3, -2, -1};
    const auto all = reinterpret_cast<__m256i>(as_bf16(first * scale, second * scale));
#endif
    low_ = bytes_of(_mm256_and_si256(all, _mm256_set1_epi16(0xff)));
    high_ = bytes_of(_mm256_srli_epi16(all, 8));
  }

  /// Instructions for a group: 13.
  template <bool kStream>
  ZPP_MEMBER void decode_group(const std::byte* from, bf16* to) const {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i_u*>(from));
    const __m128i mask = _mm_set1_epi8(15);
    const __m128i first = _mm_and_si128(bytes, mask);
    const __m128i second = _mm_and_si128(_mm_srli_epi16(bytes, 4), mask);
    const __m256i codes =
        _mm256_set_m128i(_mm_unpackhi_epi8(first, second), _mm_unpacklo_epi8(first, second));
    const __m256i low = _mm256_shuffle_epi8(low_, codes);
    const __m256i high = _mm256_shuffle_epi8(high_, codes);
    const __m256i even = _mm256_unpacklo_epi8(low, high);  // quarters 0 and 2
    const __m256i odd = _mm256_unpackhi_epi8(low, high);
    write<kStream>(to, _mm256_permute2x128_si256(even, odd, 0x20));
    write<kStream>(to + kGroup / 2, _mm256_permute2x128_si256(even, odd, 0x31));
  }

 private:
  /// The lower bytes of 16 words, in both halves.
  ZPP_MEMBER static __m256i bytes_of(__m256i words) {
    return _mm256_permute4x64_epi64(_mm256_packus_epi16(words, words), 0x88);
  }
  template <bool kStream>
  ZPP_MEMBER static void write(bf16* to, __m256i x) {
    if constexpr (kStream) {
      _mm256_stream_si256(reinterpret_cast<__m256i*>(to), x);
    } else {
      _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(to), x);
    }
  }

  __m256i low_, high_;  // bytes of the 16 numbers
};

// --- Walsh-Hadamard transform -----------------------------------------------------

/// Sums where the bit kDistance of the lane's index is clear, differences where it is set.
template <int kDistance>
ZPP_INLINE VF butterflies(VF x) {
#ifdef __AVX512F__
  constexpr VI kLane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
#else
  constexpr VI kLane = {0, 1, 2, 3, 4, 5, 6, 7};
#endif
  const VF sign = (kLane & kDistance) != 0 ? VF{} - 1.0f : VF{} + 1.0f;
  return x * sign + __builtin_shuffle(x, kLane ^ kDistance);
}

/// 32 values by the matrix of ones and minus ones, whose square is 32 times the identity.
/// Instructions: 32.
ZPP_INLINE Group transformed(const Group& x) {
  Group y = group_of([&](int i) ZPP_LAMBDA {
    const VF z = butterflies<4>(butterflies<2>(butterflies<1>(x.v[i])));
#ifdef __AVX512F__
    return butterflies<8>(z);
#else
    return z;
#endif
  });
#ifdef __AVX512F__
  return {{y.v[0] + y.v[1], y.v[0] - y.v[1]}};
#else
  y = {{y.v[0] + y.v[1], y.v[0] - y.v[1], y.v[2] + y.v[3], y.v[2] - y.v[3]}};
  return {{y.v[0] + y.v[2], y.v[1] + y.v[3], y.v[0] - y.v[2], y.v[1] - y.v[3]}};
#endif
}

}  // namespace ZPP_ISA
}  // namespace zpp::kernels
