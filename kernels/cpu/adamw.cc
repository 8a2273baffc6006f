#include "kernels/adamw.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernels/cpu/adamw_simd.h"
#include "kernels/cpu/launch.h"

namespace zpp::kernels::cpu {

void step_guard(CpuStream& stream, const View& sum_squares, const View& loss, double max_norm,
                const View& guard) {
  stream.launch("step_guard", [=](Workers&) {
    double* slots = guard.as<double>();
    const double norm = std::sqrt(*sum_squares.as<double>());
    const double loss_value =
        loss.dtype == DType::kF64 ? *loss.as<double>() : double{*loss.as<float>()};
    const bool skip = !std::isfinite(norm) || !std::isfinite(loss_value);
    const double clip = max_norm > 0 && norm > max_norm ? max_norm / norm : 1.0;
    slots[kGuardGradNorm] = norm;
    slots[kGuardScale] = skip ? 0.0 : clip;
    slots[kGuardSkip] = skip ? 1.0 : 0.0;
    if (!skip) slots[kGuardApplied] += 1.0;
  });
}

void adamw(CpuStream& stream, const AdamW& args) {
  const AdamWSimd& table = simd<AdamWSimd>(stream);
  const Work work =
      one_pass(args.master, args.master, args.m, args.m, args.v, args.v, args.grad, args.weights);
  stream.launch("adamw", work, [args, &table](Workers& workers) {
    const double* guard = args.guard.as<double>();
    if (guard[kGuardSkip] != 0.0) return;
    const double t = guard[kGuardApplied];
    if (!(t >= 1.0)) {
      throw Error(Code::kFailedPrecondition,
                  fmt::format("adamw: the guard counts {} applied steps but should count this one; "
                              "step_guard comes first",
                              t));
    }
    AdamWUpdate u{};
    u.master = args.master.data;
    u.m = args.m.data;
    u.v = args.v.data;
    u.grad = args.grad.data;
    u.weights = args.weights.data;
    u.grad_scale = guard[kGuardScale];
    u.beta1 = args.beta1;
    u.beta2 = args.beta2;
    u.step = args.lr / (1.0 - std::pow(args.beta1, t));
    u.root_scale = 1.0 / std::sqrt(1.0 - std::pow(args.beta2, t));
    u.eps = args.eps;
    u.decay = args.lr * args.weight_decay;
    auto* update = args.master.dtype == DType::kF64 ? table.f64 : table.f32;
    workers.parallel_for(args.master.numel(), kGrain,
                         [&](int64_t begin, int64_t end) { update(u, begin, end); });
  });
}

void sgd(CpuStream& stream, const Sgd& args) {
  const AdamWSimd& table = simd<AdamWSimd>(stream);
  const Work work = one_pass(args.master, args.master, args.grad, args.weights);
  stream.launch("sgd", work, [args, &table](Workers& workers) {
    const double* guard = args.guard.as<double>();
    if (guard[kGuardSkip] != 0.0) return;
    AdamWUpdate u{};
    u.master = args.master.data;
    u.grad = args.grad.data;
    u.weights = args.weights.data;
    u.grad_scale = guard[kGuardScale];
    u.step = args.lr;
    u.decay = args.lr * args.weight_decay;
    auto* update = args.master.dtype == DType::kF64 ? table.sgd_f64 : table.sgd_f32;
    workers.parallel_for(args.master.numel(), kGrain,
                         [&](int64_t begin, int64_t end) { update(u, begin, end); });
  });
}

}  // namespace zpp::kernels::cpu
