#include "kernels/cross_entropy.h"

#include "kernels/cpu/launch.h"
#include "kernels/dispatch.h"

namespace zpp::kernels {
namespace {

constexpr std::string_view kName = "cross_entropy";

void check_matrix(const Arg& arg) {
  check_that(arg.view.shape.rank() == 2 && arg.view.dense_rows(), kName,
             std::string(arg.name) + " is " + arg.view.shape.str() + " with strides " +
                 arg.view.strides.str() + " but should be (rows, V) with dense rows");
}

}  // namespace

void cross_entropy(Stream& stream, const CrossEntropy& args) {
  const View& logits = args.logits;
  check_args(kName, stream,
             {{"logits", logits},
              {"targets", args.targets},
              {"loss", args.loss},
              {"dy", args.dy},
              {"dlogits", args.dlogits},
              {"row_loss", args.row_loss}});
  check_dtype(kName, {"logits", logits}, {DType::kF32, DType::kF64});
  check_matrix({"logits", logits});
  check_shape(kName, {"targets", args.targets}, {logits.dim(0)});
  check_dtype(kName, {"targets", args.targets}, {DType::kI32});
  check_shape(kName, {"row_loss", args.row_loss}, {logits.dim(0)});
  check_dtype(kName, {"row_loss", args.row_loss}, {logits.dtype});
  check_contiguous(kName, {{"targets", args.targets}, {"row_loss", args.row_loss}});
  check_number(kName, {"loss", args.loss}, {logits.dtype});
  if (args.dy) check_number(kName, {"dy", args.dy}, {logits.dtype});
  if (args.dlogits) {
    check_shape(kName, {"dlogits", args.dlogits}, logits.shape);
    check_matrix({"dlogits", args.dlogits});
    if (logits.dtype == DType::kF64) {
      check_dtype(kName, {"dlogits", args.dlogits}, {DType::kF64});
    } else {
      check_dtype(kName, {"dlogits", args.dlogits}, {DType::kF32, DType::kBF16});
    }
    check_that(args.dlogits.data != logits.data ||
                   (args.dlogits.dtype == logits.dtype && args.dlogits.strides == logits.strides),
               kName, "dlogits in the place of logits should have their dtype and strides");
  }
  cpu::cross_entropy(cpu_stream(kName, stream), args);
}

}  // namespace zpp::kernels
