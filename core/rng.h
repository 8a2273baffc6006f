// Counter-based random numbers: a value depends on (seed, stream, index) and on nothing else, so
// that initial weights, dropout masks and data order are the same on any world size, thread count
// and device.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "core/normal.h"

namespace zpp {

/// FNV-1a, 64 bit: names of parameters and streams become Philox keys.
constexpr uint64_t hash_name(std::string_view name) {
  uint64_t h = 0xcbf29ce484222325ULL;
  for (char c : name) h = (h ^ static_cast<uint8_t>(c)) * 0x100000001b3ULL;
  return h;
}

/// SplitMix64 finaliser: mixes two words into one (a chain of ids into one stream id).
constexpr uint64_t mix_hash(uint64_t a, uint64_t b) {
  uint64_t z = a + 0x9e3779b97f4a7c15ULL * (b + 1);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

/// Philox4x32-10: four 32-bit words from a 128-bit counter and a 64-bit key.
/// Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3".
constexpr std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter,
                                         std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
    key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
  }
  return counter;
}

/// A stream of random numbers. Element i of the stream is word (offset + i) % 4 of Philox block
/// (offset + i) / 4.
struct RngKey {
  uint64_t seed = 0;
  uint64_t name_hash = 0;
  uint64_t offset = 0;

  constexpr std::array<uint32_t, 4> block(uint64_t index) const {
    return philox({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                   static_cast<uint32_t>(name_hash), static_cast<uint32_t>(name_hash >> 32)},
                  {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  }
  constexpr uint32_t bits(uint64_t element) const {
    const uint64_t e = offset + element;
    return block(e / 4)[e % 4];
  }
};

/// Uniform in (0, 1), never 0 or 1.
constexpr float uniform_from_bits(uint32_t bits) {
  return (static_cast<float>(bits >> 9) + 0.5f) * (1.0f / 8388608.0f);
}

/// Numbers for normal_pair_of().
struct NormalOps {
  using F = float;
  using U = uint32_t;
  using I = int32_t;

  static F fma(F a, F b, F c) { return std::fma(a, b, c); }
  static F sqrt(F x) { return std::sqrt(x); }
  static F to_float(U u) { return static_cast<F>(u); }
  static F to_float(I i) { return static_cast<F>(i); }
  static U to_bits(F x) { return std::bit_cast<U>(x); }
  static F from_bits(U u) { return std::bit_cast<F>(u); }
  static I to_signed(U u) { return static_cast<I>(u); }
  static U to_unsigned(I i) { return static_cast<U>(i); }
};

/// Two independent standard normal numbers from two random words.
inline std::array<float, 2> normal_pair(uint32_t first, uint32_t second) {
  const NormalPair<float> pair = normal_pair_of<NormalOps>(first, second);
  return {pair.first, pair.second};
}

/// Standard normal number `element` of the stream: numbers (2k, 2k+1) are the pair of its words
/// (2k, 2k+1).
inline float normal_at(const RngKey& key, uint64_t element) {
  const uint64_t e = key.offset + element;
  const std::array<uint32_t, 4> words = key.block(e / 4);
  const size_t pair = (e % 4) / 2 * 2;
  return normal_pair(words[pair], words[pair + 1])[e % 2];
}

}  // namespace zpp
