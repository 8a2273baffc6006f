#include "kernels/cross_entropy.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "kernels/cpu/cross_entropy_simd.h"
#include "kernels/cpu/launch.h"

namespace zpp::kernels::cpu {
namespace {

double number(const View& view) {
  return view.dtype == DType::kF64 ? *view.as<double>() : double{*view.as<float>()};
}
void put_number(const View& view, int64_t at, double value) {
  switch (view.dtype) {
    case DType::kF64:
      view.as<double>()[at] = value;
      return;
    case DType::kBF16:
      view.as<bf16>()[at] = to_bf16(static_cast<float>(value));
      return;
    default:
      view.as<float>()[at] = static_cast<float>(value);
  }
}

/// Before any row is written, so that a bad target leaves the logits as they were.
void check_targets(const View& targets, int64_t vocabulary) {
  const int32_t* target = targets.as<int32_t>();
  for (int64_t row = 0; row < targets.numel(); ++row) {
    if (target[row] >= -1 && target[row] < vocabulary) continue;
    throw Error(
        Code::kInvalidArgument,
        fmt::format("cross_entropy: the target of row {} is {} but should be 0 to {}, or -1 "
                    "for a row without target",
                    row, target[row], vocabulary - 1));
  }
}

/// One row: its loss, and its gradient when `dlogits` is there.
double one_row(const CrossEntropySimd& table, const View& logits, const View& dlogits,
               int64_t target, double scale) {
  const int64_t n = logits.numel();
  if (target < 0) {
    if (dlogits) std::memset(dlogits.data, 0, static_cast<size_t>(n * size_of(dlogits.dtype)));
    return 0;
  }
  const RowSum row = table.sum[logits.dtype](logits.data, n);
  const double x = number(logits.slice(0, target, target + 1));
  if (dlogits) {
    // The target's logit is read before the gradient takes its place.
    table.gradient[dlogits.dtype](logits.data, row, scale, dlogits.data, n);
    put_number(dlogits, target, scale * (std::exp(x - row.max) / row.sum - 1.0));
  }
  return row.max - x + std::log(row.sum);
}

}  // namespace

void cross_entropy(CpuStream& stream, const CrossEntropy& args) {
  const CrossEntropySimd& table = simd<CrossEntropySimd>(stream);
  const Work work = one_pass(args.logits, args.dlogits);
  stream.launch("cross_entropy", work, [args, &table](Workers& workers) {
    const int64_t rows = args.logits.dim(0);
    const int64_t vocabulary = args.logits.dim(1);
    check_targets(args.targets, vocabulary);
    const int32_t* targets = args.targets.as<int32_t>();
    const double scale = args.grad_scale * (args.dy ? number(args.dy) : 1.0);
    workers.parallel_for(rows, row_grain(vocabulary), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const View dlogits = args.dlogits ? args.dlogits.select(0, row) : View{};
        const double loss =
            one_row(table, args.logits.select(0, row), dlogits, targets[row], scale);
        put_number(args.row_loss, row, loss);
      }
    });
    double sum = 0;
    for (int64_t row = 0; row < rows; ++row) {
      sum += number(args.row_loss.slice(0, row, row + 1));
    }
    put_number(args.loss, 0, number(args.loss) + args.loss_scale * sum);
  });
}

}  // namespace zpp::kernels::cpu
