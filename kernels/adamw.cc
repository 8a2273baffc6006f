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

/// The arguments that all updates have.
void check_update(std::string_view kernel, const View& master, const View& grad,
                  const View& weights, const View& guard) {
  check_that(master && master.shape.rank() == 1, kernel,
             fmt::format("master is {} but should be flat", master.shape.str()));
  check_dtype(kernel, {"master", master}, {DType::kF32, DType::kF64});
  check_contiguous(kernel, {{"master", master}});
  check_flat(kernel, {"grad", grad}, master, master.dtype);
  if (weights) {
    check_that(master.dtype == DType::kF32, kernel, "master is f64, which has no separate weights");
    check_flat(kernel, {"weights", weights}, master, DType::kBF16);
  }
  check_guard(kernel, guard);
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
  check_update(kName, args.master, args.grad, args.weights, args.guard);
  check_flat(kName, {"m", args.m}, args.master, args.master.dtype);
  check_flat(kName, {"v", args.v}, args.master, args.master.dtype);
  check_that(args.beta1 >= 0 && args.beta1 < 1 && args.beta2 >= 0 && args.beta2 < 1, kName,
             fmt::format("beta1 and beta2 are {} and {} but should be at least 0 and below 1",
                         args.beta1, args.beta2));
  cpu::adamw(cpu_stream(kName, stream), args);
}

void sgd(Stream& stream, const Sgd& args) {
  constexpr std::string_view kName = "sgd";
  check_args(kName, stream,
             {{"master", args.master},
              {"grad", args.grad},
              {"weights", args.weights},
              {"guard", args.guard}});
  check_update(kName, args.master, args.grad, args.weights, args.guard);
  cpu::sgd(cpu_stream(kName, stream), args);
}

}  // namespace zpp::kernels
