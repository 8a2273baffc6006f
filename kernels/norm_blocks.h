// How the backward pass of a norm cuts its rows into blocks with partial sums of their own.
#pragma once

#include <algorithm>
#include <cstdint>

namespace zpp::kernels {

/// Depends on the count of rows only, so that results do not depend on the machine.
inline int64_t norm_rows_per_block(int64_t rows) {
  return std::max<int64_t>(16, (rows + 127) / 128);
}
inline int64_t norm_row_blocks(int64_t rows) {
  const int64_t per_block = norm_rows_per_block(rows);
  return (rows + per_block - 1) / per_block;
}

}  // namespace zpp::kernels
