// Block quantization written plainly from its definition, and arguments to hold the kernels against it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "core/rng.h"
#include "core/types.h"
#include "kernels/quantize.h"

namespace zpp::kernels {

using Bytes = std::vector<std::byte>;
using Floats = std::vector<float>;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kLargest = std::numeric_limits<float>::max();

/// All that this machine can run.
std::vector<Isa> isas();

struct Packed {
  Bytes codes;
  Floats scales;

  Coded coded() const { return {codes.data(), scales.data()}; }
  /// Bit for bit.
  bool operator==(const Packed& other) const;
};

int largest_code(const QuantFormat& format);

/// Each 32 values times the Walsh-Hadamard matrix and `factor`, a last group times `few` only.
Floats transformed(Floats x, float factor, float few);
/// `numbers`: of the values, 16 bits each; null to round to nearest.
Packed encoded(const Floats& values, const QuantFormat& format, bool hadamard,
               const uint16_t* numbers);
/// Of the first n values.
Floats decoded_sum(const std::vector<Packed>& sources, int64_t n, const QuantFormat& format);
/// Random numbers [first, first + n).
std::vector<uint16_t> numbers_of(const RngKey& key, int64_t first, int64_t n);

// --- Arguments --------------------------------------------------------------------

/// n elements, `offset` elements off an aligned address, among bytes that must stay what they are.
template <class T>
class Guarded {
 public:
  Guarded(int64_t n, int64_t offset) : n_(static_cast<size_t>(n)) {
    const size_t off = 64 + static_cast<size_t>(offset) * sizeof(T);
    memory_.assign(off + n_ * sizeof(T) + 64 + 64, std::byte{0xA5});
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    at_ = (64 - address % 64) % 64 + off;
  }
  T* data() { return reinterpret_cast<T*>(memory_.data() + at_); }
  std::vector<T> values() const {
    std::vector<T> values(n_);
    if (n_ > 0) std::memcpy(values.data(), memory_.data() + at_, n_ * sizeof(T));
    return values;
  }
  bool intact() const {
    const auto guard = [](std::byte b) { return b == std::byte{0xA5}; };
    const auto begin = memory_.begin() + static_cast<int64_t>(at_);
    const auto end = begin + static_cast<int64_t>(n_ * sizeof(T));
    return std::all_of(memory_.begin(), begin, guard) && std::all_of(end, memory_.end(), guard);
  }

 private:
  size_t n_;
  size_t at_ = 0;
  Bytes memory_;
};

template <class T>
T rounded(float x) {
  if constexpr (std::is_same_v<T, bf16>) {
    return to_bf16(x);
  } else {
    return x;
  }
}
inline float widened(float x) { return x; }
inline float widened(bf16 x) { return to_f32(x); }

/// Of very different sizes from one group of 32 to the next.
template <class T>
std::vector<T> made(int64_t n, uint64_t seed) {
  std::vector<T> values;
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t at = static_cast<uint64_t>(i);
    const float x = uniform_from_bits(RngKey{seed, 1, 0}.bits(at)) - 0.5f;
    const int exponent = static_cast<int>(mix_hash(seed, at / 32) % 12);
    values.push_back(rounded<T>(std::ldexp(x, exponent)));
  }
  return values;
}
template <class T>
Floats widened(const std::vector<T>& values, int64_t n) {
  Floats floats;
  for (int64_t i = 0; i < n; ++i) floats.push_back(widened(values[static_cast<size_t>(i)]));
  return floats;
}

/// What varies besides length, block and dtype.
struct Variant {
  bool hadamard = false;
  bool random = false;
  int64_t offset = 0;
  int64_t first = 0;
};

template <class T>
Packed quantized(Isa isa, const T* values, int64_t n, const QuantFormat& format,
                 const Variant& variant, const RngKey& key) {
  Guarded<T> from(n, variant.offset);
  Guarded<std::byte> codes(format.code_bytes(n), variant.offset);
  Guarded<float> scales(format.scales(n), variant.offset);
  if (n > 0) std::memcpy(from.data(), values, static_cast<size_t>(n) * sizeof(T));
  quantize(isa, {.from = from.data(),
                 .dtype = DTypeOf<T>::value,
                 .n = n,
                 .format = format,
                 .hadamard = variant.hadamard,
                 .rounding = variant.random ? &key : nullptr,
                 .first = variant.first,
                 .codes = codes.data(),
                 .scales = scales.data()});
  EXPECT_TRUE(codes.intact() && scales.intact() && from.intact()) << "wrote outside";
  return {codes.values(), scales.values()};
}

template <class T>
bool same_values(const std::vector<T>& got, const std::vector<T>& want) {
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::isnan(widened(want[i])) && std::isnan(widened(got[i]))) continue;
    if (std::memcmp(&got[i], &want[i], sizeof(T)) != 0) return false;
  }
  return got.size() == want.size();
}

}  // namespace zpp::kernels
