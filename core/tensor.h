// An owner of device memory. Only Tensors own; kernels take Views.
#pragma once

#include <memory>
#include <vector>

#include "core/pool.h"
#include "core/types.h"

namespace zpp {

/// Shared owner of a buffer plus a view of it. Copies are cheap and share the buffer.
class Tensor {
 public:
  Tensor() = default;
  /// Uninitialised, dense.
  Tensor(const Shape& shape, DType dtype, Pool& pool, Stream& home);

  explicit operator bool() const { return buffer_ != nullptr; }
  const View& view() const { return view_; }
  const Shape& shape() const { return view_.shape; }
  DType dtype() const { return view_.dtype; }
  int64_t numel() const { return view_.numel(); }

  Tensor reshape(const Shape& shape) const { return Tensor(buffer_, view_.reshape(shape)); }
  Tensor transpose(int a, int b) const { return Tensor(buffer_, view_.transpose(a, b)); }
  Tensor slice(int dim, int64_t begin, int64_t end) const {
    return Tensor(buffer_, view_.slice(dim, begin, end));
  }

  /// True when no other Tensor shares the buffer.
  bool unique() const { return buffer_.use_count() == 1; }

 private:
  Tensor(std::shared_ptr<void> buffer, View view) : buffer_(std::move(buffer)), view_(view) {}

  std::shared_ptr<void> buffer_;
  View view_;
};

/// Enqueues a copy of `values` into `to` (the values are copied at the call, so they may go away).
/// Errors: kInvalidArgument if the counts or the dtype disagree or `to` is not contiguous.
template <class T>
void copy_from_host(Stream& stream, const std::vector<T>& values, const View& to);

/// Blocks until `stream` has reached this point and returns the elements in row-major order.
/// Errors: kInvalidArgument if T is not the dtype or the view is not contiguous.
template <class T>
std::vector<T> copy_to_host(Stream& stream, const View& from);

}  // namespace zpp
