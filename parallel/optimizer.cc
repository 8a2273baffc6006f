#include "parallel/optimizer.h"

#include <algorithm>

#include "kernels/adamw.h"
#include "kernels/elementwise.h"

namespace zpp {

void OptimizerConfig::fields(Fields& f) {
  // Without any eps a weight that has never had a gradient would become 0 / 0.
  constexpr double kMinEps = 1e-30;
  f("name", name, "update rule; sgd has no moments", {"adamw", "sgd"})(
      "lr", lr, "highest learning rate", 0.0, 1e3)("beta1", beta1, "decay of the mean of gradients",
                                                   0.0, 0.999999)(
      "beta2", beta2, "decay of the mean of squared gradients", 0.0, 0.99999999)(
      "eps", eps, "added to the root of the mean square", kMinEps, 1.0)(
      "weight_decay", weight_decay,
      "share of a matrix taken away per step, times lr; norms and biases are not decayed", 0.0,
      1e3);
}

Optimizer::Optimizer(Runtime& runtime, const std::vector<OptimizerPart>& parts,
                     const OptimizerConfig& config)
    : runtime_(runtime), config_(config) {
  for (const OptimizerPart& part : parts) {
    PartState state{.part = part, .master = {}, .m = {}, .v = {}, .runs = runs_of(part)};
    const bool frozen = part.unit->frozen();
    const Shape shape{frozen ? 0 : part.weights.numel()};
    const DType dtype = part.grads.dtype;
    // Initial values of a frozen unit go to the weights at once.
    if (!frozen && (part.weights.dtype != dtype || part.separate_master)) {
      state.master = runtime.tensor(shape, dtype);
      master_bytes_ += state.master.view().bytes();
    }
    if (has_moments() && !frozen) {
      state.m = runtime.tensor(shape, dtype);
      state.v = runtime.tensor(shape, dtype);
      moment_bytes_ += 2 * state.m.view().bytes();
    }
    parts_.push_back(std::move(state));
  }
}

std::vector<Optimizer::Run> Optimizer::runs_of(const OptimizerPart& part) {
  const int64_t size = part.weights.numel();
  std::vector<Run> runs;
  for (const auto& p : part.unit->parameters()) {
    // Padding belongs to the run before it: it is zero and stays zero.
    const int64_t begin = std::clamp<int64_t>(p->offset() - part.begin, 0, size);
    const bool decay = p->shape().rank() >= 2, frozen = p->frozen();
    if (!runs.empty()) runs.back().end = begin;
    if (!runs.empty() && runs.back().begin == begin) runs.pop_back();
    if (runs.empty() || runs.back().decay != decay || runs.back().frozen != frozen) {
      runs.push_back({begin, size, decay, frozen});
    }
  }
  if (!runs.empty()) runs.back().end = size;
  if (!runs.empty() && runs.back().begin == size) runs.pop_back();
  return runs;
}

void Optimizer::initialize(uint64_t seed) {
  Stream& stream = runtime_.compute();
  for (const PartState& state : parts_) {
    const View master = state.master_view();
    kernels::fill(stream, master, 0.0);
    for (const auto& p : state.part.unit->parameters()) {
      const int64_t begin = std::max(p->offset(), state.part.begin);
      const int64_t end = std::min(p->offset() + p->numel(), state.part.begin + master.numel());
      if (begin >= end) continue;
      const View values = master.slice(0, begin - state.part.begin, end - state.part.begin);
      fill_initial(stream, *p, begin - p->offset(), values, seed);
    }
    if (state.master) kernels::copy(stream, master, {state.part.weights, false});
    if (!state.m) continue;
    kernels::fill(stream, state.m.view(), 0.0);
    kernels::fill(stream, state.v.view(), 0.0);
  }
}

void Optimizer::apply(size_t i, double lr, const View& guard) {
  const PartState& state = parts_[i];
  // The kernel rounds to narrower weights; others are a copy.
  const bool rounded = state.part.weights.dtype != state.part.grads.dtype;
  for (const Run& run : state.runs) {
    if (run.frozen) continue;
    const auto part = [&run](const View& flat) { return flat.slice(0, run.begin, run.end); };
    const View master = part(state.master_view()), grad = part(state.part.grads);
    const View weights = rounded ? part(state.part.weights) : View{};
    const double decay = run.decay ? config_.weight_decay : 0.0;
    if (!has_moments()) {
      kernels::sgd(runtime_.compute(), {.master = master,
                                        .grad = grad,
                                        .weights = weights,
                                        .guard = guard,
                                        .lr = lr,
                                        .weight_decay = decay});
      continue;
    }
    kernels::adamw(runtime_.compute(), {.master = master,
                                        .m = part(state.m.view()),
                                        .v = part(state.v.view()),
                                        .grad = grad,
                                        .weights = weights,
                                        .guard = guard,
                                        .lr = lr,
                                        .beta1 = config_.beta1,
                                        .beta2 = config_.beta2,
                                        .eps = config_.eps,
                                        .weight_decay = decay});
  }
  if (state.master && !rounded) {
    kernels::copy(runtime_.compute(), state.master.view(), {state.part.weights});
  }
}

}  // namespace zpp
