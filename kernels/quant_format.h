// What values look like when blocks of them share a scale.
#pragma once

#include <cstddef>
#include <cstdint>

namespace zpp::kernels {

struct QuantFormat {
  int bits = 8;          // 8 or 4
  int64_t block = 2048;  // values that share a scale: a multiple of 32, from 32 to 16384

  /// Of the codes of n values. Two codes of 4 bits share a byte, the first in its low half.
  int64_t code_bytes(int64_t n) const { return bits == 8 ? n : (n + 1) / 2; }
  /// Scales of n values; the last block may be short.
  int64_t scales(int64_t n) const { return (n + block - 1) / block; }
  bool operator==(const QuantFormat&) const = default;
};

/// n values, coded.
struct Coded {
  const std::byte* codes = nullptr;  // code_bytes(n)
  const float* scales = nullptr;     // scales(n)
};

}  // namespace zpp::kernels
