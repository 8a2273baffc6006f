// How operations look at tensors of any rank: as rows of their last dimension.
#pragma once

#include "core/types.h"

namespace zpp {

/// (rows, last dimension) of a dense view.
inline View rows_of(const View& view) {
  const int64_t cols = view.shape[-1];
  return view.reshape({cols == 0 ? 0 : view.numel() / cols, cols});
}

inline Grad rows_of(const Grad& grad) {
  return grad ? Grad{rows_of(grad.view), grad.accumulate} : Grad{};
}

}  // namespace zpp
