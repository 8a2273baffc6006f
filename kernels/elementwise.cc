#include "kernels/elementwise.h"

#include <fmt/format.h>

#include "kernels/cpu/launch.h"
#include "kernels/dispatch.h"

namespace zpp::kernels {
namespace {

constexpr std::initializer_list<DType> kFloats = {DType::kF32, DType::kBF16, DType::kF64};

/// Dense, present and as many elements as `like`.
void check_count(std::string_view kernel, const Arg& arg, const Arg& like) {
  check_contiguous(kernel, {arg});
  if (arg.view && arg.view.numel() == like.view.numel()) return;
  throw Error(
      Code::kInvalidArgument,
      fmt::format("{}: {} is {} but should have as many elements as {} {}", kernel, arg.name,
                  arg.view ? arg.view.shape.str() : "absent", like.name, like.view.shape.str()));
}

/// What every argument of a function without shapes of its own is held against.
void check_first(std::string_view kernel, const Arg& arg) {
  check_that(static_cast<bool>(arg.view), kernel, fmt::format("{} is absent", arg.name));
  check_dtype(kernel, arg, kFloats);
  check_contiguous(kernel, {arg});
}

void check_same(std::string_view kernel, const Arg& arg, const Arg& like) {
  check_count(kernel, arg, like);
  check_dtype(kernel, arg, {like.view.dtype});
}

/// x (rows, 2F) with the matching half of it: (rows, F).
Shape half_row(std::string_view kernel, const View& x) {
  check_that(x.shape.rank() == 2 && x.dim(1) % 2 == 0, kernel,
             "x is " + x.shape.str() + " but should be (rows, 2F)");
  return {x.dim(0), x.dim(1) / 2};
}

}  // namespace

void add(Stream& stream, const View& a, const View& b, const View& out) {
  constexpr std::string_view kName = "add";
  check_args(kName, stream, {{"a", a}, {"b", b}, {"out", out}});
  check_first(kName, {"a", a});
  check_same(kName, {"b", b}, {"a", a});
  check_same(kName, {"out", out}, {"a", a});
  cpu::add(cpu_stream(kName, stream), a, b, out);
}

void copy(Stream& stream, const View& from, const Grad& to, double scale) {
  constexpr std::string_view kName = "copy";
  check_args(kName, stream, {{"from", from}, {"to", to.view}});
  const bool as_is = from.dtype == to.view.dtype && scale == 1.0 && !to.accumulate;
  if (as_is) {
    check_contiguous(kName, {{"from", from}});
  } else {
    check_first(kName, {"from", from});
    check_dtype(kName, {"to", to.view}, kFloats);
  }
  check_count(kName, {"to", to.view}, {"from", from});
  cpu::copy(cpu_stream(kName, stream), from, to, scale);
}

void scale_by(Stream& stream, const View& from, const View& factor, const Grad& to) {
  constexpr std::string_view kName = "scale_by";
  check_args(kName, stream, {{"from", from}, {"factor", factor}, {"to", to.view}});
  check_first(kName, {"from", from});
  check_count(kName, {"to", to.view}, {"from", from});
  check_dtype(kName, {"to", to.view}, kFloats);
  check_number(kName, {"factor", factor}, {DType::kF32, DType::kF64});
  cpu::scale_by(cpu_stream(kName, stream), from, factor, to);
}

void fill(Stream& stream, const View& out, double value) {
  constexpr std::string_view kName = "fill";
  check_args(kName, stream, {{"out", out}});
  check_that(static_cast<bool>(out), kName, "out is absent");
  check_contiguous(kName, {{"out", out}});
  cpu::fill(cpu_stream(kName, stream), out, value);
}

void activation(Stream& stream, Activation kind, const View& x, const View& y) {
  constexpr std::string_view kName = "activation";
  check_args(kName, stream, {{"x", x}, {"y", y}});
  check_first(kName, {"x", x});
  check_same(kName, {"y", y}, {"x", x});
  cpu::activation(cpu_stream(kName, stream), kind, x, y);
}

void activation_backward(Stream& stream, Activation kind, const View& dy, const View& x,
                         const Grad& dx) {
  constexpr std::string_view kName = "activation_backward";
  check_args(kName, stream, {{"dy", dy}, {"x", x}, {"dx", dx.view}});
  check_first(kName, {"x", x});
  check_same(kName, {"dy", dy}, {"x", x});
  check_same(kName, {"dx", dx.view}, {"x", x});
  cpu::activation_backward(cpu_stream(kName, stream), kind, dy, x, dx);
}

void swiglu(Stream& stream, const View& x, const View& y) {
  constexpr std::string_view kName = "swiglu";
  check_args(kName, stream, {{"x", x}, {"y", y}});
  check_first(kName, {"x", x});
  check_shape(kName, {"y", y}, half_row(kName, x));
  check_contiguous(kName, {{"y", y}});
  check_dtype(kName, {"y", y}, {x.dtype});
  cpu::swiglu(cpu_stream(kName, stream), x, y);
}

void swiglu_backward(Stream& stream, const View& dy, const View& x, const Grad& dx) {
  constexpr std::string_view kName = "swiglu_backward";
  check_args(kName, stream, {{"dy", dy}, {"x", x}, {"dx", dx.view}});
  check_first(kName, {"x", x});
  check_shape(kName, {"dy", dy}, half_row(kName, x));
  check_contiguous(kName, {{"dy", dy}});
  check_dtype(kName, {"dy", dy}, {x.dtype});
  check_shape(kName, {"dx", dx.view}, x.shape);
  check_same(kName, {"dx", dx.view}, {"x", x});
  cpu::swiglu_backward(cpu_stream(kName, stream), dy, x, dx);
}

void dropout(Stream& stream, const Dropout& args) {
  constexpr std::string_view kName = "dropout";
  check_args(kName, stream, {{"x", args.x}, {"y", args.y.view}});
  check_first(kName, {"x", args.x});
  check_same(kName, {"y", args.y.view}, {"x", args.x});
  check_that(args.p >= 0 && args.p < 1, kName,
             fmt::format("p is {} but should be at least 0 and below 1", args.p));
  cpu::dropout(cpu_stream(kName, stream), args);
}

void fill_normal(Stream& stream, const View& out, float mean, float stddev, const RngKey& key) {
  constexpr std::string_view kName = "fill_normal";
  check_args(kName, stream, {{"out", out}});
  check_first(kName, {"out", out});
  cpu::fill_normal(cpu_stream(kName, stream), out, mean, stddev, key);
}

}  // namespace zpp::kernels
