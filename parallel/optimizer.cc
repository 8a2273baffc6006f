#include "parallel/optimizer.h"

#include "kernels/adamw.h"
#include "kernels/elementwise.h"

namespace zpp {

void OptimizerConfig::fields(Fields& f) {
  // Without any eps a weight that has never had a gradient would become 0 / 0.
  constexpr double kMinEps = 1e-30;
  f("name", name, "update rule", {"adamw"})("lr", lr, "highest learning rate", 0.0, 1e3)(
      "beta1", beta1, "decay of the mean of gradients", 0.0, 0.999999)(
      "beta2", beta2, "decay of the mean of squared gradients", 0.0, 0.99999999)(
      "eps", eps, "added to the root of the mean square", kMinEps, 1.0)(
      "weight_decay", weight_decay,
      "share of a matrix taken away per step, times lr; norms and biases are not decayed", 0.0,
      1e3);
}

Optimizer::Optimizer(Runtime& runtime, ParameterTable& table, const OptimizerConfig& config)
    : runtime_(runtime), config_(config) {
  for (const auto& unit : table.units()) {
    UnitState state{.unit = unit.get(), .master = {}, .m = {}, .v = {}, .runs = runs_of(*unit)};
    const Shape shape{unit->flat_numel()};
    const DType dtype = unit->grad_dtype();
    if (unit->dtype() != dtype) {
      state.master = runtime.tensor(shape, dtype);
      master_bytes_ += state.master.view().bytes();
    }
    state.m = runtime.tensor(shape, dtype);
    state.v = runtime.tensor(shape, dtype);
    moment_bytes_ += 2 * state.m.view().bytes();
    units_.push_back(std::move(state));
  }
}

std::vector<Optimizer::Run> Optimizer::runs_of(const ParameterUnit& unit) {
  std::vector<Run> runs;
  for (const auto& p : unit.parameters()) {
    const bool decay = p->shape().rank() >= 2;
    if (runs.empty() || runs.back().decay != decay) runs.push_back({p->offset(), 0, decay});
    // Padding belongs to the run before it: it is zero and stays zero.
    if (runs.size() > 1) runs[runs.size() - 2].end = runs.back().begin;
  }
  if (!runs.empty()) runs.back().end = unit.flat_numel();
  return runs;
}

void Optimizer::initialize(uint64_t seed) {
  Stream& stream = runtime_.compute();
  for (const UnitState& state : units_) {
    const View master = state.master_view();
    kernels::fill(stream, master, 0.0);
    for (const auto& p : state.unit->parameters()) {
      fill_initial(stream, *p, 0, master.slice(0, p->offset(), p->offset() + p->numel()), seed);
    }
    if (state.master) kernels::copy(stream, master, {state.unit->weights(), false});
    kernels::fill(stream, state.m.view(), 0.0);
    kernels::fill(stream, state.v.view(), 0.0);
  }
}

void Optimizer::apply(double lr, const View& guard) {
  for (const UnitState& state : units_) {
    for (const Run& run : state.runs) {
      const auto part = [&run](const View& flat) { return flat.slice(0, run.begin, run.end); };
      kernels::adamw(runtime_.compute(),
                     {.master = part(state.master_view()),
                      .m = part(state.m.view()),
                      .v = part(state.v.view()),
                      .grad = part(state.unit->grads()),
                      .weights = state.master ? part(state.unit->weights()) : View{},
                      .guard = guard,
                      .lr = lr,
                      .beta1 = config_.beta1,
                      .beta2 = config_.beta2,
                      .eps = config_.eps,
                      .weight_decay = run.decay ? config_.weight_decay : 0.0});
    }
  }
}

}  // namespace zpp
