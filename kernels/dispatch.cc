#include "kernels/dispatch.h"

#include <fmt/format.h>

#include <algorithm>

namespace zpp::kernels {

void check_args(std::string_view kernel, const Stream& stream, std::initializer_list<Arg> args) {
  for (const Arg& arg : args) {
    const View& view = arg.view;
    if (!view) continue;
    if (view.device != stream.device()) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("{}: {} lives on {} but stream {} computes on {}", kernel, arg.name,
                              to_string(view.device), stream.name(), to_string(stream.device())));
    }
    if (view.generation != nullptr && *view.generation != view.seen) {
      throw Error(
          Code::kFailedPrecondition,
          fmt::format("{}: {} {} is a parameter that has been released since this view of it "
                      "was taken; take the view again inside the operation that reads it",
                      kernel, arg.name, view.shape.str()));
    }
  }
}

void check_shape(std::string_view kernel, const Arg& arg, const Shape& wanted) {
  if (arg.view.shape == wanted) return;
  throw Error(Code::kInvalidArgument, fmt::format("{}: {} is {} but should be {}", kernel, arg.name,
                                                  arg.view.shape.str(), wanted.str()));
}

void check_contiguous(std::string_view kernel, std::initializer_list<Arg> args) {
  for (const Arg& arg : args) {
    if (arg.view.contiguous()) continue;
    throw Error(Code::kInvalidArgument,
                fmt::format("{}: {} {} has strides {} but should be dense row-major", kernel,
                            arg.name, arg.view.shape.str(), arg.view.strides.str()));
  }
}

void check_dtype(std::string_view kernel, const Arg& arg, std::initializer_list<DType> allowed) {
  if (std::find(allowed.begin(), allowed.end(), arg.view.dtype) != allowed.end()) return;
  std::string wanted;
  for (DType dtype : allowed) {
    if (!wanted.empty()) wanted += " or ";
    wanted += to_string(dtype);
  }
  throw Error(Code::kInvalidArgument, fmt::format("{}: {} is {} but should be {}", kernel, arg.name,
                                                  to_string(arg.view.dtype), wanted));
}

void check_number(std::string_view kernel, const Arg& arg, std::initializer_list<DType> allowed) {
  check_dtype(kernel, arg, allowed);
  if (arg.view && arg.view.numel() == 1) return;
  throw Error(Code::kInvalidArgument, fmt::format("{}: {} is {} but should be one number", kernel,
                                                  arg.name, arg.view.shape.str()));
}

void check_that(bool ok, std::string_view kernel, std::string_view complaint) {
  if (!ok) throw Error(Code::kInvalidArgument, fmt::format("{}: {}", kernel, complaint));
}

CpuStream& cpu_stream(std::string_view kernel, Stream& stream) {
  auto* cpu = dynamic_cast<CpuStream*>(&stream);
  if (cpu == nullptr) {
    throw Error(Code::kFailedPrecondition,
                fmt::format("{}: this build has no kernels for {} (stream {})", kernel,
                            to_string(stream.device()), stream.name()));
  }
  return *cpu;
}

}  // namespace zpp::kernels
