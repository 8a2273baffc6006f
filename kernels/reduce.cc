#include "kernels/reduce.h"

#include "kernels/cpu/launch.h"
#include "kernels/dispatch.h"

namespace zpp::kernels {
namespace {

void check_input(std::string_view kernel, const View& x) {
  check_that(static_cast<bool>(x), kernel, "x is absent");
  check_dtype(kernel, {"x", x}, {DType::kF32, DType::kBF16, DType::kF64});
}

}  // namespace

void sum_squares(Stream& stream, const View& x, const Grad& out) {
  constexpr std::string_view kName = "sum_squares";
  check_args(kName, stream, {{"x", x}, {"out", out.view}});
  check_input(kName, x);
  check_contiguous(kName, {{"x", x}});
  check_number(kName, {"out", out.view}, {DType::kF64});
  cpu::sum_squares(cpu_stream(kName, stream), x, out);
}

void sum_rows(Stream& stream, const View& x, const Grad& out) {
  constexpr std::string_view kName = "sum_rows";
  check_args(kName, stream, {{"x", x}, {"out", out.view}});
  check_input(kName, x);
  check_that(x.shape.rank() == 2 && x.dense_rows(), kName,
             "x is " + x.shape.str() + " with strides " + x.strides.str() +
                 " but should be (rows, cols) with dense rows");
  check_shape(kName, {"out", out.view}, {x.dim(1)});
  check_dtype(kName, {"out", out.view}, {accumulator_of(x.dtype)});
  check_contiguous(kName, {{"out", out.view}});
  cpu::sum_rows(cpu_stream(kName, stream), x, out);
}

void any_nonfinite(Stream& stream, const View& x, const View& out) {
  constexpr std::string_view kName = "any_nonfinite";
  check_args(kName, stream, {{"x", x}, {"out", out}});
  check_input(kName, x);
  check_contiguous(kName, {{"x", x}});
  check_number(kName, {"out", out}, {DType::kI32});
  cpu::any_nonfinite(cpu_stream(kName, stream), x, out);
}

}  // namespace zpp::kernels
