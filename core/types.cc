#include "core/types.h"

#include <fmt/format.h>

#include <utility>

namespace zpp {

namespace {

void check_extent(int64_t extent) {
  if (extent < 0) {
    throw Error(Code::kInvalidArgument,
                fmt::format("shape: extents must not be negative but one is {}", extent));
  }
}

[[noreturn]] void too_many_dims(size_t dims) {
  throw Error(
      Code::kInvalidArgument,
      fmt::format("shape: {} dimensions, but at most {} are possible", dims, Shape::kMaxRank));
}

/// `dim` as an index from the front, checked against `view`.
int dim_index(const char* what, const View& view, int dim) {
  const int rank = view.shape.rank();
  const int index = dim < 0 ? dim + rank : dim;
  if (index < 0 || index >= rank) {
    throw Error(Code::kInvalidArgument,
                fmt::format("{}: dimension {} of a view of shape {}", what, dim, view.shape.str()));
  }
  return index;
}

void* advance(const View& view, int64_t elements) {
  return static_cast<char*>(view.data) + elements * size_of(view.dtype);
}

}  // namespace

std::string to_string(const Device& device) {
  return device.type == DeviceType::kCpu ? std::string("cpu")
                                         : fmt::format("cuda:{}", device.index);
}

int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBF16:
      return 2;
    case DType::kF64:
    case DType::kI64:
      return 8;
    case DType::kI8:
    case DType::kU8:
      return 1;
  }
  throw Error(Code::kInternal, fmt::format("dtype {} does not exist", static_cast<int>(dtype)));
}

const char* to_string(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kBF16:
      return "bf16";
    case DType::kF64:
      return "f64";
    case DType::kI32:
      return "i32";
    case DType::kI64:
      return "i64";
    case DType::kI8:
      return "i8";
    case DType::kU8:
      return "u8";
  }
  return "unknown";
}

Shape::Shape(std::initializer_list<int64_t> dims) {
  if (dims.size() > kMaxRank) too_many_dims(dims.size());
  for (int64_t extent : dims) append(extent);
}

void Shape::append(int64_t value) {
  if (rank_ == kMaxRank) too_many_dims(kMaxRank + 1);
  check_extent(value);
  dims_[static_cast<size_t>(rank_++)] = value;
}

int64_t Shape::numel() const {
  int64_t total = 1;
  bool overflow = false;
  for (int i = 0; i < rank_; ++i) {
    overflow |= __builtin_mul_overflow(total, dims_[static_cast<size_t>(i)], &total);
  }
  if (overflow) {
    throw Error(Code::kInvalidArgument,
                fmt::format("shape {} has more elements than 64 bits can count", str()));
  }
  return total;
}

std::string Shape::str() const {
  std::string text = "(";
  for (int i = 0; i < rank_; ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(dims_[static_cast<size_t>(i)]);
  }
  return text + ")";
}

int Shape::index(int dim) const {
  const int index = dim < 0 ? dim + rank_ : dim;
  if (index < 0 || index >= rank_) {
    throw Error(Code::kInvalidArgument, fmt::format("shape {} has no dimension {}", str(), dim));
  }
  return index;
}

Shape row_major_strides(const Shape& shape) {
  Shape strides = shape;
  int64_t stride = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides.set(i, stride);
    stride *= shape[i];
  }
  return strides;
}

bool View::contiguous() const {
  int64_t dense = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    if (shape[i] == 0) return true;
    if (shape[i] != 1 && strides[i] != dense) return false;
    dense *= shape[i];
  }
  return true;
}

View View::reshape(const Shape& to) const {
  if (to.numel() != numel()) {
    throw Error(Code::kInvalidArgument, fmt::format("reshape: {} has {} elements but {} has {}",
                                                    shape.str(), numel(), to.str(), to.numel()));
  }
  if (!contiguous()) {
    throw Error(
        Code::kInvalidArgument,
        fmt::format("reshape: a view of shape {} and strides {} is not contiguous, so it cannot "
                    "become {}; was it transposed or sliced?",
                    shape.str(), strides.str(), to.str()));
  }
  View result = *this;
  result.shape = to;
  result.strides = row_major_strides(to);
  return result;
}

View View::transpose(int a, int b) const {
  const int from = dim_index("transpose", *this, a);
  const int to = dim_index("transpose", *this, b);
  View result = *this;
  result.shape.set(from, shape[to]);
  result.shape.set(to, shape[from]);
  result.strides.set(from, strides[to]);
  result.strides.set(to, strides[from]);
  return result;
}

View View::slice(int dim, int64_t begin, int64_t end) const {
  const int at = dim_index("slice", *this, dim);
  if (begin < 0 || end < begin || end > shape[at]) {
    throw Error(Code::kInvalidArgument,
                fmt::format("slice: [{}, {}) is outside dimension {} of a view of shape {}", begin,
                            end, dim, shape.str()));
  }
  View result = *this;
  result.data = advance(*this, begin * strides[at]);
  result.shape.set(at, end - begin);
  return result;
}

View View::select(int dim, int64_t at) const {
  const int removed = dim_index("select", *this, dim);
  if (at < 0 || at >= shape[removed]) {
    throw Error(Code::kInvalidArgument,
                fmt::format("select: entry {} is outside dimension {} of a view of shape {}", at,
                            dim, shape.str()));
  }
  View result = *this;
  result.data = advance(*this, at * strides[removed]);
  result.shape = {};
  result.strides = {};
  for (int i = 0; i < shape.rank(); ++i) {
    if (i == removed) continue;
    result.shape.append(shape[i]);
    result.strides.append(strides[i]);
  }
  return result;
}

void View::wrong_type(DType wanted) const {
  throw Error(Code::kInvalidArgument,
              fmt::format("a view of shape {} holds {} but is read as {}", shape.str(),
                          to_string(dtype), to_string(wanted)));
}

View make_view(void* data, const Shape& shape, DType dtype, Device device) {
  View view;
  view.data = data;
  view.dtype = dtype;
  view.device = device;
  view.shape = shape;
  view.strides = row_major_strides(shape);
  return view;
}

}  // namespace zpp
