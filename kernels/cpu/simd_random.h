// Philox and normal numbers by the vector: for *_simd.cc files only. The numbers are those of
// core/rng.h, bit for bit.
#pragma once

#include "core/normal.h"
#include "core/rng.h"
#include "kernels/cpu/simd_vector.h"

namespace zpp::kernels {
namespace ZPP_ISA {

typedef uint64_t VQ __attribute__((vector_size(4 * kWidth)));

/// Random words of kBlock elements that follow each other, in the order that Block<bf16> has.
struct Words {
  VU v[kVectors];
};

/// The lanes of x[0] and x[1] in turn, and those of x[2] and x[3].
template <class V>
ZPP_INLINE void put_in_order(V (&x)[kVectors]) {
#ifdef __AVX512F__
  const VI low = {0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23};
  const VI high = {8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
#else
  const VI low = {0, 8, 1, 9, 2, 10, 3, 11}, high = {4, 12, 5, 13, 6, 14, 7, 15};
#endif
  for (int i = 0; i < kVectors; i += 2) {
    const V even = x[i], odd = x[i + 1];
    x[i] = __builtin_shuffle(even, odd, low);
    x[i + 1] = __builtin_shuffle(even, odd, high);
  }
}

/// The words of a key. A lane of 64 bits holds a word of one block in its lower half; what is above
/// it does not matter to a multiplication of lower halves.
class Philox {
 public:
  ZPP_MEMBER explicit Philox(const RngKey& key)
      : name_low_(VQ{} + (key.name_hash & 0xffffffffu)), name_high_(VQ{} + (key.name_hash >> 32)) {
    auto low = static_cast<uint32_t>(key.seed);
    auto high = static_cast<uint32_t>(key.seed >> 32);
    for (int round = 0; round < 10; ++round) {
      low_[round] = VQ{} + uint64_t{low};
      high_[round] = VQ{} + uint64_t{high};
      low += 0x9E3779B9u;
      high += 0xBB67AE85u;
    }
  }

  /// From block `first` on. Instructions: 172, 80 of them multiplications and shifts.
  ///
  /// Two groups of blocks side by side: one is a chain of ten multiplications that each wait for
  /// the one before.
  ZPP_MEMBER Words words(uint64_t first) const {
    constexpr int kGroups = kVectors / 2;
#ifdef __AVX512F__
    const VQ lane = {0, 1, 2, 3, 4, 5, 6, 7};
#else
    const VQ lane = {0, 1, 2, 3};
#endif
    VQ c0[kGroups], c1[kGroups], c2[kGroups], c3[kGroups];
    for (int i = 0; i < kGroups; ++i) {
      c0[i] = first + static_cast<uint64_t>(i * kWidth / 2) + lane;
      c1[i] = c0[i] >> 32;
      c2[i] = name_low_;
      c3[i] = name_high_;
    }
#pragma GCC unroll 10
    for (int round = 0; round < 10; ++round) {
      for (int i = 0; i < kGroups; ++i) {
        const VQ p0 = product(c0[i], 0xD2511F53u);
        const VQ p1 = product(c2[i], 0xCD9E8D57u);
        c0[i] = (p1 >> 32) ^ c1[i] ^ low_[round];
        c1[i] = p1;
        c2[i] = (p0 >> 32) ^ c3[i] ^ high_[round];
        c3[i] = p0;
      }
    }
    Words words;
    for (int i = 0; i < kGroups; ++i) {
      words.v[2 * i] = joined(c0[i], c2[i]);
      words.v[2 * i + 1] = joined(c1[i], c3[i]);
    }
    return words;
  }

 private:
  ZPP_MEMBER static VQ product(VQ x, uint32_t by) {
    const VQ factor = VQ{} + uint64_t{by};
#ifdef __AVX512F__
    return reinterpret_cast<VQ>(_mm512_maskz_mul_epu32(0xff, reinterpret_cast<__m512i>(x),
                                                       reinterpret_cast<__m512i>(factor)));
#else
    return reinterpret_cast<VQ>(
        _mm256_mul_epu32(reinterpret_cast<__m256i>(x), reinterpret_cast<__m256i>(factor)));
#endif
  }
  ZPP_MEMBER static VU joined(VQ low, VQ high) {
    return reinterpret_cast<VU>((low & 0xffffffffu) | (high << 32));
  }

  VQ name_low_, name_high_;
  VQ low_[10], high_[10];
};

/// Calls whole(at, words) for kBlock elements at a time from `begin` on, or few(at, n, words, skip)
/// where fewer are wanted: the n elements whose words follow the first `skip`.
template <class Whole, class Few>
ZPP_INLINE void for_words(const RngKey& key, int64_t begin, int64_t end, const Whole& whole,
                          const Few& few) {
  const Philox philox(key);
  for (int64_t at = begin; at < end;) {
    const uint64_t element = key.offset + static_cast<uint64_t>(at);
    const Words words = philox.words(element / 4);
    // Only the first block of a range may start in its middle.
    const auto skip = static_cast<int64_t>(element % 4);
    const int64_t rest = kBlock - skip;
    const int64_t n = end - at < rest ? end - at : rest;
    if (n == kBlock) {
      whole(at, words);
    } else {
      few(at, n, words, skip);
    }
    at += n;
  }
}

/// Vectors for normal_pair_of().
struct VectorNormalOps {
  using F = VF;
  using U = VU;
  using I = VI;

  ZPP_MEMBER static F fma(F a, F b, F c) { return fma_of(a, b, c); }
  ZPP_MEMBER static F sqrt(F x) { return sqrt_of(x); }
  ZPP_MEMBER static F to_float(U u) { return float_of(u); }
  ZPP_MEMBER static F to_float(I i) { return float_of(i); }
  ZPP_MEMBER static U to_bits(F x) { return bits_of(x); }
  ZPP_MEMBER static F from_bits(U u) { return reinterpret_cast<F>(u); }
  ZPP_MEMBER static I to_signed(U u) { return reinterpret_cast<I>(u); }
  ZPP_MEMBER static U to_unsigned(I i) { return reinterpret_cast<U>(i); }
};

}  // namespace ZPP_ISA
}  // namespace zpp::kernels
