// Inner loops of the rotary positions.
#pragma once

#include "kernels/cpu/isa.h"

namespace zpp::kernels {

/// Pairs of channels that are rotated in one go, so that their sines fit on the stack.
inline constexpr int64_t kRopePairs = 64;

/// One of x, y: strides in elements over batch, time and head.
struct RopeSide {
  void* data;
  int64_t batch, time, head;
};

struct RopePass {
  RopeSide x, y;
  int64_t length, heads, width;  // T, heads, D
  int64_t rotary_dims;
  int64_t first_pair, pairs;  // rotate these
  const double* frequencies;  // of these pairs, negative for the inverse
  bool copy_rest;             // and copy the channels from rotary_dims on
  const int32_t* doc_start;   // may be null
};

struct RopeSimd {
  /// Over places b * T + t in [begin, end).
  ByType<void(const RopePass&, int64_t begin, int64_t end)> rotate;
};

ZPP_DECLARE_SIMD(RopeSimd)

}  // namespace zpp::kernels
