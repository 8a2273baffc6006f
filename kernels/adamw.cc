#include "kernels/adamw.h"

#include <fmt/format.h>

#include "kernels/cpu/launch.h"
#include "kernels/dispatch.h"

namespace zpp::kernels {
namespace {

void check_guard(std::string_view kernel, const View& guard) {
  check_shape(kernel, {"guard", guard}, {kGuardSize});
  check_dtype(kernel, {"guard", guard}, {DType::kF64});
  check_contiguous(kernel, {{"guard", guard}});
}

void check_flat(std::string_view kernel, const Arg& arg, const View& master, DType dtype) {
  check_shape(kernel, arg, master.shape);
  check_dtype(kernel, arg, {dtype});
  check_contiguous(kernel, {arg});
}

}  // namespace

void step_guard(Stream& stream, const View& sum_squares, const View& loss, double max_norm,
                const View& guard) {
  constexpr std::string_view kName = "step_guard";
  check_args(kName, stream, {{"sum_squares", sum_squares}, {"loss", loss}, {"guard", guard}});
  check_number(kName, {"sum_squares", sum_squares}, {DType::kF64});
  check_number(kName, {"loss", loss}, {DType::kF32, DType::kF64});
  check_guard(kName, guard);
  cpu::step_guard(cpu_stream(kName, stream), sum_squares, loss, max_norm, guard);
}

void adamw(Stream& stream, const AdamW& args) {
  constexpr std::string_view kName = "adamw";
  check_args(kName, stream,
             {{"master", args.master},
              {"m", args.m},
              {"v", args.v},
              {"grad", args.grad},
              {"weights", args.weights},
              {"guard", args.guard}});
  const View& master = args.master;
  check_that(master && master.shape.rank() == 1, kName,
             fmt::format("master is {} but should be flat", master.shape.str()));
  check_dtype(kName, {"master", master}, {DType::kF32, DType::kF64});
  check_contiguous(kName, {{"master", master}});
  check_flat(kName, {"m", args.m}, master, master.dtype);
  check_flat(kName, {"v", args.v}, master, master.dtype);
  check_flat(kName, {"grad", args.grad}, master, master.dtype);
  if (args.weights) {
    check_that(master.dtype == DType::kF32, kName, "master is f64, which has no separate weights");
    check_flat(kName, {"weights", args.weights}, master, DType::kBF16);
  }
  check_guard(kName, args.guard);
  check_that(args.beta1 >= 0 && args.beta1 < 1 && args.beta2 >= 0 && args.beta2 < 1, kName,
             fmt::format("beta1 and beta2 are {} and {} but should be at least 0 and below 1",
                         args.beta1, args.beta2));
  cpu::adamw(cpu_stream(kName, stream), args);
}

}  // namespace zpp::kernels
