#include "kernels/norm.h"

#include <algorithm>

#include "kernels/cpu/launch.h"
#include "kernels/dispatch.h"
#include "kernels/norm_blocks.h"

namespace zpp::kernels {
namespace {

/// x says what the others should be.
void check_rows(std::string_view kernel, const View& x) {
  check_that(x.shape.rank() == 2, kernel, "x is " + x.shape.str() + " but should be (rows, cols)");
  check_dtype(kernel, {"x", x}, {DType::kF32, DType::kBF16, DType::kF64});
  check_contiguous(kernel, {{"x", x}});
}

void check_like(std::string_view kernel, const Arg& arg, const Shape& shape, DType dtype) {
  check_shape(kernel, arg, shape);
  check_dtype(kernel, arg, {dtype});
  check_contiguous(kernel, {arg});
}

void check_column_sums(std::string_view kernel, const View& x, const View& scratch) {
  const int64_t wanted = norm_backward_scratch(x.dim(0), x.dim(1));
  check_dtype(kernel, {"scratch", scratch}, {accumulator_of(x.dtype)});
  check_contiguous(kernel, {{"scratch", scratch}});
  check_that(scratch && scratch.numel() >= wanted, kernel,
             "scratch holds " + std::to_string(scratch ? scratch.numel() : 0) +
                 " elements but norm_backward_scratch() asks for " + std::to_string(wanted));
}

}  // namespace

int64_t norm_backward_scratch(int64_t rows, int64_t cols) {
  return norm_row_blocks(rows) * 2 * cols;
}

void rms_norm(Stream& stream, const RmsNorm& args) {
  constexpr std::string_view kName = "rms_norm";
  const View& x = args.x;
  check_args(kName, stream, {{"x", x}, {"gamma", args.gamma}, {"y", args.y}, {"rstd", args.rstd}});
  check_rows(kName, x);
  check_like(kName, {"gamma", args.gamma}, {x.dim(1)}, x.dtype);
  check_like(kName, {"y", args.y}, x.shape, x.dtype);
  check_like(kName, {"rstd", args.rstd}, {x.dim(0)}, accumulator_of(x.dtype));
  cpu::rms_norm(cpu_stream(kName, stream), args);
}

void rms_norm_backward(Stream& stream, const RmsNormBackward& args) {
  constexpr std::string_view kName = "rms_norm_backward";
  const View& x = args.x;
  check_args(kName, stream,
             {{"dy", args.dy},
              {"x", x},
              {"gamma", args.gamma},
              {"rstd", args.rstd},
              {"dx", args.dx.view},
              {"dgamma", args.dgamma.view},
              {"scratch", args.scratch}});
  check_rows(kName, x);
  check_like(kName, {"dy", args.dy}, x.shape, x.dtype);
  check_like(kName, {"gamma", args.gamma}, {x.dim(1)}, x.dtype);
  check_like(kName, {"rstd", args.rstd}, {x.dim(0)}, accumulator_of(x.dtype));
  if (args.dx) check_like(kName, {"dx", args.dx.view}, x.shape, x.dtype);
  if (args.dgamma) {
    check_like(kName, {"dgamma", args.dgamma.view}, {x.dim(1)}, accumulator_of(x.dtype));
    check_column_sums(kName, x, args.scratch);
  }
  cpu::rms_norm_backward(cpu_stream(kName, stream), args);
}

void layer_norm(Stream& stream, const LayerNorm& args) {
  constexpr std::string_view kName = "layer_norm";
  const View& x = args.x;
  check_args(kName, stream,
             {{"x", x},
              {"gamma", args.gamma},
              {"beta", args.beta},
              {"y", args.y},
              {"mean", args.mean},
              {"rstd", args.rstd}});
  check_rows(kName, x);
  check_like(kName, {"gamma", args.gamma}, {x.dim(1)}, x.dtype);
  if (args.beta) check_like(kName, {"beta", args.beta}, {x.dim(1)}, x.dtype);
  check_like(kName, {"y", args.y}, x.shape, x.dtype);
  check_like(kName, {"mean", args.mean}, {x.dim(0)}, accumulator_of(x.dtype));
  check_like(kName, {"rstd", args.rstd}, {x.dim(0)}, accumulator_of(x.dtype));
  cpu::layer_norm(cpu_stream(kName, stream), args);
}

void layer_norm_backward(Stream& stream, const LayerNormBackward& args) {
  constexpr std::string_view kName = "layer_norm_backward";
  const View& x = args.x;
  check_args(kName, stream,
             {{"dy", args.dy},
              {"x", x},
              {"gamma", args.gamma},
              {"mean", args.mean},
              {"rstd", args.rstd},
              {"dx", args.dx.view},
              {"dgamma", args.dgamma.view},
              {"dbeta", args.dbeta.view},
              {"scratch", args.scratch}});
  check_rows(kName, x);
  check_like(kName, {"dy", args.dy}, x.shape, x.dtype);
  check_like(kName, {"gamma", args.gamma}, {x.dim(1)}, x.dtype);
  check_like(kName, {"mean", args.mean}, {x.dim(0)}, accumulator_of(x.dtype));
  check_like(kName, {"rstd", args.rstd}, {x.dim(0)}, accumulator_of(x.dtype));
  if (args.dx) check_like(kName, {"dx", args.dx.view}, x.shape, x.dtype);
  if (args.dgamma)
    check_like(kName, {"dgamma", args.dgamma.view}, {x.dim(1)}, accumulator_of(x.dtype));
  if (args.dbeta)
    check_like(kName, {"dbeta", args.dbeta.view}, {x.dim(1)}, accumulator_of(x.dtype));
  if (args.dgamma || args.dbeta) check_column_sums(kName, x, args.scratch);
  cpu::layer_norm_backward(cpu_stream(kName, stream), args);
}

}  // namespace zpp::kernels
