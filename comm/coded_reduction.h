// How gradients are summed when their messages are coded.
#pragma once

#include <cstdint>
#include <memory>

#include "comm/packet.h"

namespace zpp {

/// How a flat f32 buffer is summed.
struct CodedReduction {
  std::shared_ptr<const Segments> segments;  // of the buffer that `in` is a part of
  int64_t first = 0;                         // where in that buffer `in` begins
  WireFormat intra, inter;                   // between ranks of a node, between nodes
  DType as_is = DType::kF32;                 // f32 or bf16: how what is not coded travels
  bool hadamard = false;                     // before the first coding, undone after the last
  /// Null: round to nearest. Levels and ranks draw from streams of their own.
  std::shared_ptr<const RngKey> rounding;
  /// Each rank's part travels in at least so many pieces, so that levels overlap; the bits do not depend on it.
  int64_t chunks = 1;
  /// What pieces are multiples of: of all block lengths.
  int64_t grid = 64;
  float scale = 1;  // of the sum, applied once
};

}  // namespace zpp
