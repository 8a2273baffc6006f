// Devices, element types, shapes and views: what every kernel argument is made of.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "core/error.h"

namespace zpp {

enum class DeviceType : uint8_t { kCpu, kCuda };

struct Device {
  DeviceType type = DeviceType::kCpu;
  int index = 0;
  bool operator==(const Device&) const = default;
};

std::string to_string(const Device& device);

enum class DType : uint8_t { kF32, kBF16, kF64, kI32, kI64, kI8, kU8 };

/// Bytes of one element.
int64_t size_of(DType dtype);
const char* to_string(DType dtype);

/// What sums over elements of `dtype` are kept in: f64 for f64, else f32.
inline DType accumulator_of(DType dtype) {
  return dtype == DType::kF64 ? DType::kF64 : DType::kF32;
}

/// Storage of a bfloat16 number: the upper half of an f32. Arithmetic happens in f32.
struct bf16 {
  uint16_t bits = 0;
};

/// Exact.
inline float to_f32(bf16 x) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(x.bits) << 16);
}

/// Round half to even; NaN stays NaN (made quiet), Inf stays Inf, overflow becomes Inf.
inline bf16 to_bf16(float x) {
  const uint32_t u = __builtin_bit_cast(uint32_t, x);
  const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  const uint32_t nan = (u >> 16) | 0x40u;
  return {static_cast<uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? nan : rounded)};
}

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kF32;
};
template <>
struct DTypeOf<bf16> {
  static constexpr DType value = DType::kBF16;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::kF64;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::kI32;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = DType::kI64;
};
template <>
struct DTypeOf<int8_t> {
  static constexpr DType value = DType::kI8;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType value = DType::kU8;
};

/// At most six dimensions, no heap. Rank 0 is a scalar (numel 1).
class Shape {
 public:
  static constexpr int kMaxRank = 6;

  Shape() = default;
  Shape(std::initializer_list<int64_t> dims);

  int rank() const { return rank_; }
  /// Negative `dim` counts from the end.
  int64_t operator[](int dim) const { return dims_[static_cast<size_t>(index(dim))]; }
  void set(int dim, int64_t value) { dims_[static_cast<size_t>(index(dim))] = value; }
  void append(int64_t value);
  int64_t numel() const;
  bool operator==(const Shape&) const = default;
  std::string str() const;  // "(8, 512, 768)"

 private:
  int index(int dim) const;

  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

/// Strides, in elements, of a dense row-major tensor.
Shape row_major_strides(const Shape& shape);

/// Non-owning: what kernels take. `data == nullptr` with rank 0 means "absent" for optional
/// arguments.
struct View {
  void* data = nullptr;
  DType dtype = DType::kF32;
  Device device;
  Shape shape;
  Shape strides;  // in elements
  const uint32_t* generation =
      nullptr;  // set for parameters: a released parameter's view is refused
  uint32_t seen = 0;

  explicit operator bool() const { return data != nullptr; }
  int64_t numel() const { return shape.numel(); }
  int64_t bytes() const { return numel() * size_of(dtype); }
  int64_t dim(int d) const { return shape[d]; }
  int64_t stride(int d) const { return strides[d]; }
  /// Dense row-major (dimensions of extent 1 do not matter).
  bool contiguous() const;
  /// The last dimension is dense.
  bool dense_rows() const { return shape.rank() == 0 || strides[-1] == 1 || shape[-1] <= 1; }

  /// Typed pointer.
  /// Errors:  kInvalidArgument if T is not the dtype.
  template <class T>
  T* as() const {
    if (DTypeOf<T>::value != dtype) wrong_type(DTypeOf<T>::value);
    return static_cast<T*>(data);
  }

  /// Errors: kInvalidArgument if the element counts differ or the view is not contiguous.
  View reshape(const Shape& to) const;
  View transpose(int a, int b) const;
  /// Elements [begin, end) of `dim`.
  View slice(int dim, int64_t begin, int64_t end) const;
  /// Removes `dim` by taking entry `at`.
  View select(int dim, int64_t at) const;

 private:
  [[noreturn]] void wrong_type(DType wanted) const;
};

/// A dense view of memory that somebody else owns.
View make_view(void* data, const Shape& shape, DType dtype, Device device = {});

/// Where a kernel puts a gradient. An empty view: not wanted. `accumulate`: += instead of =.
struct Grad {
  View view;
  bool accumulate = false;
  explicit operator bool() const { return static_cast<bool>(view); }
};

}  // namespace zpp
