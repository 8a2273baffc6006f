// Inner loops of the embedding: one row or a part of one.
#pragma once

#include "kernels/cpu/isa.h"

namespace zpp::kernels {

struct EmbeddingSimd {
  /// y = a + b, or y = a when b is null.
  using Row = void(const void* a, const void* b, void* y, int64_t n);
  /// sums += dy, with the sums in the accumulation dtype.
  using Add = void(const void* dy, void* sums, int64_t n);

  ByType<Row> row;
  ByType<Add> add;
};

ZPP_DECLARE_SIMD(EmbeddingSimd)

}  // namespace zpp::kernels
