// The one device switch, and the checks that every kernel makes at its door.
#pragma once

#include <initializer_list>
#include <string_view>

#include "core/cpu_stream.h"
#include "core/types.h"

namespace zpp::kernels {

/// A named argument, for messages.
struct Arg {
  std::string_view name;
  const View& view;
};

/// Refuses arguments that live on another device than `stream` and parameters whose unit has been
/// released since the view was taken. Absent views pass.
/// Errors:  kInvalidArgument (device), kFailedPrecondition (released), naming kernel and argument.
void check_args(std::string_view kernel, const Stream& stream, std::initializer_list<Arg> args);

/// Errors: kInvalidArgument "rms_norm: gamma is (512) but should be (768)".
void check_shape(std::string_view kernel, const Arg& arg, const Shape& wanted);
/// Errors: kInvalidArgument unless the view is dense row-major.
void check_contiguous(std::string_view kernel, std::initializer_list<Arg> args);
/// Errors: kInvalidArgument unless the dtype is one of `allowed`.
void check_dtype(std::string_view kernel, const Arg& arg, std::initializer_list<DType> allowed);
/// Errors: kInvalidArgument unless the view is one number, of a dtype that is `allowed`.
void check_number(std::string_view kernel, const Arg& arg, std::initializer_list<DType> allowed);
/// A condition on the arguments that is not one of the above.
/// Errors: kInvalidArgument "kernel: complaint".
void check_that(bool ok, std::string_view kernel, std::string_view complaint);

/// The CPU's stream behind the interface.
/// Errors: kFailedPrecondition for a device that this build has no kernels for.
CpuStream& cpu_stream(std::string_view kernel, Stream& stream);

/// Calls fn with a value of the C++ type of `dtype` (f32, bf16 or f64), for kernels that are
/// templates on it.
/// Errors:  kInvalidArgument for any other dtype.
template <class Fn>
decltype(auto) with_float_type(std::string_view kernel, DType dtype, Fn&& fn) {
  switch (dtype) {
    case DType::kF32:
      return fn(float{});
    case DType::kBF16:
      return fn(bf16{});
    case DType::kF64:
      return fn(double{});
    default:
      throw Error(Code::kInvalidArgument, std::string(kernel) + ": dtype is " + to_string(dtype) +
                                              " but should be f32, bf16 or f64");
  }
}

}  // namespace zpp::kernels
