#include "kernels/rope.h"

#include <fmt/format.h>

#include "kernels/cpu/launch.h"
#include "kernels/dispatch.h"

namespace zpp::kernels {

void rope(Stream& stream, const Rope& args) {
  constexpr std::string_view kName = "rope";
  const View& x = args.x;
  check_args(kName, stream, {{"x", x}, {"y", args.y}, {"doc_start", args.doc_start}});
  check_that(x.shape.rank() == 4, kName,
             "x is " + x.shape.str() + " but should be (B, T, heads, D)");
  check_dtype(kName, {"x", x}, {DType::kF32, DType::kBF16, DType::kF64});
  check_shape(kName, {"y", args.y}, x.shape);
  check_dtype(kName, {"y", args.y}, {x.dtype});
  check_that(x.dense_rows() && args.y.dense_rows(), kName,
             fmt::format("x has strides {} and y {} but their last dimension should be dense",
                         x.strides.str(), args.y.strides.str()));
  check_that(args.rotary_dims >= 0 && args.rotary_dims % 2 == 0 && args.rotary_dims <= x.dim(3),
             kName,
             fmt::format("rotary_dims is {} but should be even and at most the head width {}",
                         args.rotary_dims, x.dim(3)));
  check_that(args.theta > 0, kName, fmt::format("theta is {} but should be positive", args.theta));
  if (args.doc_start) {
    check_shape(kName, {"doc_start", args.doc_start}, {x.dim(0), x.dim(1)});
    check_dtype(kName, {"doc_start", args.doc_start}, {DType::kI32});
    check_contiguous(kName, {{"doc_start", args.doc_start}});
  }
  cpu::rope(cpu_stream(kName, stream), args);
}

}  // namespace zpp::kernels
