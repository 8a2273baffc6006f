#include "core/data/permutation.h"

#include <fmt/format.h>

#include <bit>

#include "core/error.h"
#include "core/rng.h"

namespace zpp {
namespace {

// Four rounds of a good function already pass for random; tiny domains profit from some more.
constexpr int kRounds = 8;

uint64_t low_bits(uint64_t value, int bits) { return value & ((uint64_t{1} << bits) - 1); }

}  // namespace

Permutation::Permutation(int64_t size, uint64_t seed, uint64_t stream)
    : size_(size), seed_(seed), stream_(stream) {
  if (size <= 0 || size > int64_t{1} << 62) {
    throw Error(Code::kInvalidArgument,
                fmt::format("permutation: expected a size from 1 to 2^62, found {}", size));
  }
  const int bits = std::bit_width(static_cast<uint64_t>(size - 1));
  left_bits_ = bits / 2;
  right_bits_ = bits - left_bits_;
}

// An unbalanced network: each round replaces one side by itself xor a function of the other, then
// the sides swap their roles. Each round can be undone, whatever the widths, so the whole is a
// permutation.
uint64_t Permutation::once(uint64_t value) const {
  uint64_t left = value >> right_bits_, right = low_bits(value, right_bits_);
  for (uint32_t round = 0; round < kRounds; ++round) {
    const bool change_left = round % 2 == 0;
    const uint64_t from = change_left ? right : left;
    const auto words = philox({static_cast<uint32_t>(from), round, static_cast<uint32_t>(stream_),
                               static_cast<uint32_t>(stream_ >> 32)},
                              {static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)});
    if (change_left)
      left ^= low_bits(words[0], left_bits_);
    else
      right ^= low_bits(words[0], right_bits_);
  }
  return left << right_bits_ | right;
}

int64_t Permutation::operator()(int64_t index) const {
  uint64_t value = static_cast<uint64_t>(index);
  do {
    value = once(value);
  } while (value >= static_cast<uint64_t>(size_));
  return static_cast<int64_t>(value);
}

}  // namespace zpp
