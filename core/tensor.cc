#include "core/tensor.h"

#include <fmt/format.h>

#include <cstring>

namespace zpp {

namespace {

template <class T>
void check_copy(const char* what, const Stream& stream, const View& view) {
  if (view.device != stream.device() || view.device.type != DeviceType::kCpu) {
    throw Error(
        Code::kInvalidArgument,
        fmt::format("{}: the view is on {} and stream {} on {}, but both should be on cpu", what,
                    to_string(view.device), stream.name(), to_string(stream.device())));
  }
  if (view.dtype != DTypeOf<T>::value) {
    throw Error(Code::kInvalidArgument,
                fmt::format("{}: the view {} holds {} but the vector {}", what, view.shape.str(),
                            to_string(view.dtype), to_string(DTypeOf<T>::value)));
  }
  if (!view.contiguous()) {
    throw Error(Code::kInvalidArgument,
                fmt::format("{}: a view of shape {} and strides {} is not contiguous", what,
                            view.shape.str(), view.strides.str()));
  }
}

void copy_bytes(void* to, const void* from, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace

Tensor::Tensor(const Shape& shape, DType dtype, Pool& pool, Stream& home) {
  if (pool.device() != home.device()) {
    throw Error(Code::kInvalidArgument,
                fmt::format("tensor: the pool is on {} but its home stream {} on {}",
                            to_string(pool.device()), home.name(), to_string(home.device())));
  }
  int64_t bytes = 0;
  if (__builtin_mul_overflow(shape.numel(), size_of(dtype), &bytes)) {
    throw Error(Code::kInvalidArgument,
                fmt::format("tensor: {} of {} has more bytes than 64 bits can count", shape.str(),
                            to_string(dtype)));
  }
  buffer_ = pool.allocate(bytes, home);
  view_ = make_view(buffer_.get(), shape, dtype, pool.device());
}

template <class T>
void copy_from_host(Stream& stream, const std::vector<T>& values, const View& to) {
  check_copy<T>("copy_from_host", stream, to);
  if (static_cast<int64_t>(values.size()) != to.numel()) {
    throw Error(Code::kInvalidArgument,
                fmt::format("copy_from_host: {} values for a view of shape {}, which takes {}",
                            values.size(), to.shape.str(), to.numel()));
  }
  stream.host("copy_from_host", [values, data = to.data] {
    copy_bytes(data, values.data(), values.size() * sizeof(T));
  });
}

template <class T>
std::vector<T> copy_to_host(Stream& stream, const View& from) {
  check_copy<T>("copy_to_host", stream, from);
  std::vector<T> values(static_cast<size_t>(from.numel()));
  stream.host("copy_to_host", [&values, data = from.data] {
    copy_bytes(values.data(), data, values.size() * sizeof(T));
  });
  stream.synchronize();
  return values;
}

#define ZPP_INSTANTIATE_COPIES(T)                                               \
  template void copy_from_host<T>(Stream&, const std::vector<T>&, const View&); \
  template std::vector<T> copy_to_host<T>(Stream&, const View&);

ZPP_INSTANTIATE_COPIES(float)
ZPP_INSTANTIATE_COPIES(bf16)
ZPP_INSTANTIATE_COPIES(double)
ZPP_INSTANTIATE_COPIES(int32_t)
ZPP_INSTANTIATE_COPIES(int64_t)
ZPP_INSTANTIATE_COPIES(int8_t)
ZPP_INSTANTIATE_COPIES(uint8_t)

#undef ZPP_INSTANTIATE_COPIES

}  // namespace zpp
