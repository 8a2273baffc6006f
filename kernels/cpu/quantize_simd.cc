#include "kernels/cpu/quantize_simd.h"

#include "kernels/cpu/simd_group.h"
#include "kernels/cpu/simd_random.h"

namespace zpp::kernels {
namespace ZPP_ISA {
namespace {

constexpr int64_t kLongestBlock = 16384;
/// Values that are made and coded at a time, so that they are still in the first-level cache.
constexpr int64_t kTile = 2048;

// What a transform is divided by, and the values of a last group, which has none.
constexpr float kDivideGroup = 1.0f / 32, kDivideFew = 1.0f / 4, kMultiplyFew = 4;

/// Whole blocks, as many as fit.
ZPP_INLINE int64_t tile_of(int64_t block) { return block < kTile ? kTile / block * block : block; }

ZPP_INLINE int64_t lesser(int64_t a, int64_t b) { return a < b ? a : b; }

template <int kBits>
ZPP_INLINE int64_t bytes_of(int64_t values) {
  return kBits == 8 ? values : (values + 1) >> 1;
}

// --- Rounding ---------------------------------------------------------------------

/// Random numbers of 16 bits.
class Numbers {
 public:
  static constexpr bool kRandom = true;

  ZPP_MEMBER explicit Numbers(const EncodeTo& to)
      : philox_(*to.rounding), first_(2 * to.rounding->offset + static_cast<uint64_t>(to.first)) {}

  /// Those of elements [begin, begin + n), n at most kLongestBlock.
  ZPP_MEMBER const int16_t* draw(int64_t begin, int64_t n) {
    constexpr uint64_t kOfBlock = 8;  // numbers of a Philox block
    const uint64_t number = first_ + static_cast<uint64_t>(begin);
    const auto skip = static_cast<int64_t>(number % kOfBlock);
    uint64_t block = number / kOfBlock;
    for (int64_t at = 0; at < skip + n; at += 2 * kBlock) {
      Words words = philox_.words(block);
      put_in_order(words.v);
      for (int i = 0; i < kVectors; ++i) put<false>(numbers_ + at + i * 2 * kWidth, words.v[i]);
      block += kBlock / 4;
    }
    return numbers_ + skip;
  }

 private:
  Philox philox_;
  uint64_t first_;
  alignas(64) int16_t numbers_[kLongestBlock + 2 * kBlock + kGroup];
};

struct ToNearest {
  static constexpr bool kRandom = false;

  ZPP_MEMBER explicit ToNearest(const EncodeTo&) {}
  ZPP_MEMBER const int16_t* draw(int64_t, int64_t) { return nullptr; }
};

/// What is added to numbers before they are rounded to nearest: evenly from (-1/2, 1/2), less 2^-14
/// of it on both sides, so that an integer which is off by a few roundings goes to itself.
/// Instructions for a vector: 3.
template <class From>
ZPP_INLINE Group dither(const int16_t* numbers, const From* x) {
  constexpr float kStep = 16383.0f / 16384 / 65536;
  const Group integers = integers_for_codes(numbers, x);
  return group_of([&](int i)
                      ZPP_LAMBDA { return fma_of(integers.v[i], VF{} + kStep, VF{} + kStep / 2); });
}

// --- Encoding ---------------------------------------------------------------------

struct Scale {
  float scale;
  float inverse;  // 0: all codes are
};
ZPP_INLINE Scale scale_of(uint32_t largest_bits, float q) {
  constexpr uint32_t kInf = 0x7f800000u;
  constexpr float kSmallest = 0x1p-119f;
  if (largest_bits >= kInf) return {__builtin_nanf(""), 0};
  const float largest = from_bits(largest_bits);
  if (largest < kSmallest) return {0, 0};
  float scale = largest / q;
  // Next to the end of f32 the scale is rounded down, or decoding would overflow.
  if (q * scale > __FLT_MAX__) scale = from_bits(bits_of(scale) - 1);
  return {scale, 1.0f / scale};
}

template <class From>
ZPP_INLINE uint32_t largest_of(const From* x, int64_t n) {
  Magnitudes<From> seen;
  int64_t i = 0;
  for (; i + kGroup <= n; i += kGroup) seen.see(x + i);
  uint32_t largest = seen.largest();
  for (; i < n; ++i) {
    const uint32_t bits = bits_of(load(x[i])) & 0x7fffffffu;
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

/// A group over the scale, ready to be rounded to nearest.
template <class Rounding, class From>
ZPP_INLINE Group scaled(const From* x, VF inverse, const int16_t* numbers) {
  const Group values = load_for_codes(x);
  if constexpr (!Rounding::kRandom) return times(values, inverse);
  const Group added = dither(numbers, x);
  return group_of([&](int i) ZPP_LAMBDA { return fma_of(values.v[i], inverse, added.v[i]); });
}

/// `next`: what will be coded after these, brought to the caches meanwhile.
template <int kBits, class Rounding, class From>
ZPP_INLINE void encode_block(const From* x, const From* next, int64_t n, float inverse,
                             const int16_t* numbers, std::byte* codes) {
  if (inverse == 0) {
    for (int64_t i = 0; i < bytes_of<kBits>(n); ++i) codes[i] = std::byte{0};
    return;
  }
  constexpr int64_t kLine = 64 / sizeof(From);
  const VF factor = VF{} + inverse;
  const auto group = [=](int64_t i)
                         ZPP_LAMBDA { return scaled<Rounding>(x + i, factor, numbers + i); };
  int64_t i = 0;
  for (; i + 2 * kGroup <= n; i += 2 * kGroup) {
    for (int64_t k = 0; k < 2 * kGroup; k += kLine) __builtin_prefetch(next + i + k);
    put_codes_of_two<kBits, From>(codes + bytes_of<kBits>(i), group(i), group(i + kGroup));
  }
  if (i + kGroup <= n) {
    put_codes<kBits, From>(codes + bytes_of<kBits>(i), group(i));
    i += kGroup;
  }
  if (i == n) return;
  float few[kGroup] = {};
  std::byte few_codes[kGroup];
  for (int64_t k = 0; i + k < n; ++k) few[k] = load(x[i + k]);
  put_codes<kBits, float>(few_codes, scaled<Rounding>(few, factor, numbers + i));
  for (int64_t k = 0; k < bytes_of<kBits>(n - i); ++k) codes[bytes_of<kBits>(i) + k] = few_codes[k];
}

/// Codes of elements [begin, begin + n), one tile. First what all blocks need of the slow divisions,
/// then all codes.
template <int kBits, class Rounding, class From>
ZPP_INLINE void encode_tile(const From* x, const From* next, int64_t begin, int64_t n,
                            Rounding& rounding, const EncodeTo& to) {
  constexpr float kLargestCode = kBits == 8 ? 127 : 7;
  const int64_t block = to.format.block;
  uint32_t largest[kTile / kGroup];
  float inverse[kTile / kGroup];
  int64_t blocks = 0;
  for (int64_t at = 0; at < n; at += block) {
    largest[blocks++] = largest_of(x + at, lesser(block, n - at));
  }
  float* scales = to.scales + begin / block;
  for (int64_t b = 0; b < blocks; ++b) {
    const Scale scale = scale_of(largest[b], kLargestCode);
    scales[b] = scale.scale;
    inverse[b] = scale.inverse;
  }
  const int16_t* numbers = rounding.draw(begin, n);
  std::byte* codes = to.codes + bytes_of<kBits>(begin);
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t at = b * block;
    encode_block<kBits, Rounding>(x + at, next + at, lesser(block, n - at), inverse[b],
                                  numbers + at, codes + bytes_of<kBits>(at));
  }
}

/// Codes of n values that make(values, begin, n) writes, tile by tile.
template <int kBits, class Rounding, class Make>
ZPP_INLINE void encode_made(const EncodeTo& to, const Make& make) {
  Rounding rounding(to);
  alignas(64) float values[kLongestBlock];
  const int64_t tile = tile_of(to.format.block);
  for (int64_t begin = 0; begin < to.n; begin += tile) {
    const int64_t n = lesser(tile, to.n - begin);
    make(values, begin, n);
    encode_tile<kBits>(values, values, begin, n, rounding, to);
  }
}

template <class From>
ZPP_INLINE void transform(const From* x, int64_t n, float* to) {
  int64_t i = 0;
  for (; i + kGroup <= n; i += kGroup) {
    store_group<false>(to + i, transformed(times(load_group(x + i), VF{} + kDivideGroup)));
  }
  for (; i < n; ++i) to[i] = load(x[i]) * kDivideFew;
}

template <int kBits, class Rounding, class From>
void encode_from(const From* x, bool hadamard, const EncodeTo& to) {
  if (hadamard) {
    encode_made<kBits, Rounding>(to, [=](float* values, int64_t begin, int64_t n)
                                         ZPP_LAMBDA { transform(x + begin, n, values); });
    return;
  }
  Rounding rounding(to);
  const int64_t tile = tile_of(to.format.block);
  for (int64_t begin = 0; begin < to.n; begin += tile) {
    const From* next = begin + 2 * tile <= to.n ? x + begin + tile : x + begin;
    encode_tile<kBits>(x + begin, next, begin, lesser(tile, to.n - begin), rounding, to);
  }
}

template <int kBits, class From>
void encode(const void* from, bool hadamard, const EncodeTo& to) {
  const auto* x = static_cast<const From*>(from);
  if (to.rounding != nullptr) return encode_from<kBits, Numbers>(x, hadamard, to);
  encode_from<kBits, ToNearest>(x, hadamard, to);
}

// --- Decoding ---------------------------------------------------------------------

/// The sum of kGroup values from element `at` of block `b` on, or of the last n.
template <int kBits, bool kWhole>
ZPP_INLINE Group sum_of_sources(const CodedSum& from, int64_t at, int64_t b, int64_t n) {
  const auto decoded = [=](const Coded& source) ZPP_LAMBDA {
    const std::byte* codes = source.codes + bytes_of<kBits>(at);
    const VF scale = VF{} + source.scales[b];
    if constexpr (kWhole) return rounded_product(group_of_codes<kBits>(codes), scale);
    std::byte few[kGroup] = {};
    for (int64_t i = 0; i < bytes_of<kBits>(n); ++i) few[i] = codes[i];
    return rounded_product(group_of_codes<kBits>(few), scale);
  };
  Group sum = decoded(from.sources[0]);
  for (int k = 1; k < from.count; ++k) sum = plus(sum, decoded(from.sources[k]));
  return sum;
}

/// Calls whole(at, sum) for the groups of elements [begin, end), and few(at, n, sum) for a last one
/// of n.
template <int kBits, class Whole, class Few>
ZPP_INLINE void for_sums(const CodedSum& from, int64_t begin, int64_t end, const Whole& whole,
                         const Few& few) {
  for (int64_t at = begin; at < end;) {
    const int64_t b = at / from.format.block;
    const int64_t stop = lesser((b + 1) * from.format.block, end);
    if (from.count == 1) {
      const VF scale = VF{} + from.sources[0].scales[b];
      const std::byte* codes = from.sources[0].codes;
      for (; at + kGroup <= stop; at += kGroup) {
        whole(at, rounded_product(group_of_codes<kBits>(codes + bytes_of<kBits>(at)), scale));
      }
    }
    for (; at + kGroup <= stop; at += kGroup) {
      whole(at, sum_of_sources<kBits, true>(from, at, b, kGroup));
    }
    if (at == stop) continue;
    few(at, stop - at, sum_of_sources<kBits, false>(from, at, b, stop - at));
    at = stop;
  }
}

template <bool kStream, class T>
ZPP_INLINE void put_result(T* out, const Group& sum, const DecodeTo& to) {
  Group y = rounded_product(sum, VF{} + to.scale);
  if (to.accumulate) y = plus(load_group(out), y);
  store_group<kStream>(out, y);
}

/// Up to `n` results, those of whole groups by put(at, sum).
template <int kBits, class T, class Put>
ZPP_INLINE void decode_with(const CodedSum& from, const DecodeTo& to, const Put& put) {
  T* out = static_cast<T*>(to.out);
  for_sums<kBits>(from, 0, from.n, put, [&](int64_t at, int64_t n, const Group& sum) ZPP_LAMBDA {
    T values[kGroup] = {};
    for (int64_t i = 0; i < n; ++i) values[i] = out[at + i];
    put_result<false>(values, to.hadamard ? times(sum, VF{} + kMultiplyFew) : sum, to);
    for (int64_t i = 0; i < n; ++i) out[at + i] = values[i];
  });
}

/// Decodes codes of 4 bits by looking them up.
template <bool kStream>
ZPP_INLINE void look_up(const CodedSum& from, bf16* out) {
  const std::byte* codes = from.sources[0].codes;
  for (int64_t at = 0; at < from.n;) {
    const int64_t b = at / from.format.block;
    const int64_t stop = lesser((b + 1) * from.format.block, from.n);
    const Meanings meanings(from.sources[0].scales[b]);
    for (; at + kGroup <= stop; at += kGroup) {
      meanings.decode_group<kStream>(codes + bytes_of<4>(at), out + at);
    }
    if (at == stop) continue;
    std::byte few[kGroup] = {};
    bf16 values[kGroup];
    for (int64_t i = 0; i < bytes_of<4>(stop - at); ++i) few[i] = codes[bytes_of<4>(at) + i];
    meanings.decode_group<false>(few, values);
    for (int64_t i = 0; at + i < stop; ++i) out[at + i] = values[i];
    at = stop;
  }
}

template <int kBits, bool kStream, class T>
ZPP_INLINE void decode_as(const CodedSum& from, const DecodeTo& to) {
  T* out = static_cast<T*>(to.out);
  const bool plain = !to.hadamard && !to.accumulate && to.scale == 1;
  if constexpr (kBits == 4 && sizeof(T) == sizeof(bf16)) {
    if (plain && from.count == 1) return look_up<kStream>(from, out);
  }
  if (plain) {
    decode_with<kBits, T>(from, to, [=](int64_t at, const Group& sum) ZPP_LAMBDA {
      store_group<kStream>(out + at, sum);
    });
  } else {
    decode_with<kBits, T>(from, to, [&](int64_t at, const Group& sum) ZPP_LAMBDA {
      put_result<kStream>(out + at, to.hadamard ? transformed(sum) : sum, to);
    });
  }
}

template <int kBits, class T>
void decode(const CodedSum& from, const DecodeTo& to) {
  if (!to.stream) return decode_as<kBits, false, T>(from, to);
  decode_as<kBits, true, T>(from, to);
  _mm_sfence();
}

template <int kFromBits, int kBits, class Rounding>
ZPP_INLINE void encode_sum_rounding(const CodedSum& from, const EncodeTo& to) {
  encode_made<kBits, Rounding>(to, [&](float* values, int64_t begin, int64_t n) ZPP_LAMBDA {
    const auto whole = [=](int64_t at, const Group& sum)
                           ZPP_LAMBDA { store_group<false>(values + (at - begin), sum); };
    // The array has room for a whole group.
    for_sums<kFromBits>(from, begin, begin + n, whole,
                        [&](int64_t at, int64_t, const Group& sum) ZPP_LAMBDA { whole(at, sum); });
  });
}

template <int kFromBits, int kBits>
void encode_sum(const CodedSum& from, const EncodeTo& to) {
  if (to.rounding != nullptr) return encode_sum_rounding<kFromBits, kBits, Numbers>(from, to);
  encode_sum_rounding<kFromBits, kBits, ToNearest>(from, to);
}

template <int kBits>
constexpr QuantizeSimd::ByBits kByBits = {encode<kBits, float>,
                                          encode<kBits, bf16>,
                                          decode<kBits, float>,
                                          decode<kBits, bf16>,
                                          {encode_sum<8, kBits>, encode_sum<4, kBits>}};

}  // namespace
}  // namespace ZPP_ISA

ZPP_DEFINE_SIMD(QuantizeSimd, {kByBits<8>, kByBits<4>})

}  // namespace zpp::kernels
