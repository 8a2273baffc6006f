#include "parallel/zero_hooks.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "kernels/elementwise.h"

namespace zpp {
namespace {

ParameterTable& laid_out(ParameterTable& table, const RankGroups& groups, const ZeroWires& wires) {
  for (const auto& unit : table.units()) {
    unit->layout(ShardLayout::kAlignment, wires.grid * groups.world(), wires.grid);
  }
  return table;
}

int64_t largest_inside(const ParameterTable& table) {
  int64_t largest = 0;
  for (const auto& unit : table.units().subspan(1)) {
    largest = std::max(largest, unit->flat_numel());
  }
  return largest;
}

}  // namespace

ZeroHooks::ZeroHooks(Runtime& runtime, ParameterTable& table, const RankGroups& groups,
                     ZeroHooksOptions options)
    : runtime_(runtime),
      table_(laid_out(table, groups, options.wires)),
      groups_(groups),
      options_(std::move(options)),
      stalls_(runtime.compute()),
      slots_(runtime, spread() ? 1 + options_.prefetch_units : 0, largest_inside(table),
             table.dtype()),
      root_slot_(runtime, spread() ? 1 : 0, table.root().flat_numel(), table.dtype()),
      gather_(runtime, table, groups, options_.wires),
      grads_(runtime, table, groups, stalls_,
             {.overlap = options_.overlap, .wires = options_.wires, .seed = options_.seed}) {
  for (const auto& unit : table.units()) add_unit(*unit);
}

void ZeroHooks::add_unit(ParameterUnit& unit) {
  index_[&unit] = units_.size();
  const Range range = groups_.layout().params(unit.flat_numel());
  units_.push_back({.unit = &unit,
                    .kept = runtime_.tensor({range.size()}, unit.dtype()),
                    .range = range,
                    .written = {}});
  // Padding is never sent in packets.
  kernels::fill(runtime_.compute(), units_.back().kept.view(), 0.0);
  weight_bytes_ += units_.back().kept.view().bytes();
  if (!spread()) unit.bind_weights(units_.back().kept.view());
}

View ZeroHooks::optimizer_part(size_t unit) const {
  const UnitWeights& weights = units_[unit];
  const Range part = groups_.layout().optimizer(weights.unit->flat_numel());
  return weights.kept.view().slice(0, part.begin - weights.range.begin,
                                   part.end - weights.range.begin);
}

View ZeroHooks::kept(size_t unit) {
  stalls_.wait(units_[unit].written);
  return units_[unit].kept.view();
}

void ZeroHooks::begin(Pass pass) {
  pass_ = pass;
  trace().begin();
  if (pass != Pass::kForward) grads_.begin(pass == Pass::kLastMicro);
  // Also what a pass that ended with an error has left behind.
  slots_.free_unused(nullptr);
  root_slot_.free_unused(nullptr);
}

void ZeroHooks::before_forward(ParameterUnit& unit) {
  if (pass_ != Pass::kForward) grads_.expect(unit);
  enter(unit);
}

void ZeroHooks::after_forward(ParameterUnit& unit) {
  if (!spread()) return;
  if (!is_root(unit)) return leave(unit, slots_);
  if (pass_ == Pass::kForward) leave(unit, root_slot_);
}

void ZeroHooks::before_backward(ParameterUnit& unit) {
  if (!is_root(unit)) enter(unit);
  grads_.bind(unit);
}

void ZeroHooks::after_backward(ParameterUnit& unit) {
  grads_.reduce(unit);
  if (spread()) leave(unit, is_root(unit) ? root_slot_ : slots_);
}

void ZeroHooks::enter(ParameterUnit& unit) {
  follow_trace(unit);
  if (!spread()) return stalls_.wait(units_[index_.at(&unit)].written);
  if (is_root(unit)) return enter_root();
  slots_.free_left(&unit);
  GatherSlots::Slot& slot = fetch(unit);
  slot.state = GatherSlots::State::kInUse;
  prefetch();
  bind(slot);
}

void ZeroHooks::enter_root() {
  root_slot_.free_left(nullptr);
  GatherSlots::Slot* slot = root_slot_.take(table_.root());
  if (slot == nullptr) throw Error(Code::kInternal, "the root unit was entered twice");
  start(*slot);
  slot->state = GatherSlots::State::kInUse;
  prefetch();
  bind(*slot);
}

void ZeroHooks::leave(ParameterUnit& unit, GatherSlots& slots) {
  GatherSlots::Slot* slot = slots.find(unit);
  if (slot == nullptr) throw Error(Code::kInternal, "a unit was left that had not been entered");
  unit.bind_weights({});
  slot->state = GatherSlots::State::kLeft;
  slot->released = runtime_.compute().record();
}

void ZeroHooks::follow_trace(ParameterUnit& unit) {
  if (!trace().enter(unit)) return;
  slots_.free_unused(&unit);
  if (std::exchange(warned_, true) || !options_.warn) return;
  const UnitTrace::Surprise& surprise = trace().surprise();
  options_.warn(fmt::format(
      "unit {} runs where {} ran before; weights are gathered on demand while the order is new",
      surprise.found->name(),
      surprise.expected != nullptr ? "unit " + surprise.expected->name() : "no other unit"));
}

void ZeroHooks::prefetch() {
  for (ParameterUnit* unit : trace().next(options_.prefetch_units)) {
    if (is_root(*unit) || slots_.find(*unit) != nullptr) continue;
    GatherSlots::Slot* slot = slots_.take(*unit);
    if (slot == nullptr) return;
    start(*slot);
  }
}

GatherSlots::Slot& ZeroHooks::fetch(ParameterUnit& unit) {
  GatherSlots::Slot* slot = slots_.find(unit);
  if (slot != nullptr) return *slot;
  slot = slots_.take(unit);
  if (slot == nullptr) {
    slots_.free_unused(&unit);
    slot = slots_.take(unit);
  }
  if (slot == nullptr) {
    throw Error(Code::kFailedPrecondition,
                fmt::format("unit {} runs inside others, whose weights fill all {} buffers; a "
                            "higher zero.prefetch_units adds some",
                            unit.name(), 1 + options_.prefetch_units));
  }
  start(*slot);
  return *slot;
}

void ZeroHooks::start(GatherSlots::Slot& slot) {
  const size_t unit = index_.at(slot.unit);
  const UnitWeights& weights = units_[unit];
  std::vector<Event> after = {slot.released, weights.written};
  if (!options_.overlap) after.push_back(runtime_.compute().record());
  slot.ready = gather_.gather(unit, weights.kept.view(), slot.weights(), after);
  last_gather_ = slot.ready;
  if (!options_.overlap) stalls_.wait(slot.ready);
}

void ZeroHooks::bind(GatherSlots::Slot& slot) {
  stalls_.wait(slot.ready);
  slot.unit->bind_weights(slot.weights());
}

void ZeroHooks::before_update() { stalls_.wait(last_gather_); }

void ZeroHooks::after_update(size_t unit) {
  if (groups_.world() == 1) return;  // the compute stream's own order is enough
  UnitWeights& weights = units_[unit];
  weights.written = gather_.publish(unit, weights.kept.view(), runtime_.compute().record());
  last_gather_ = weights.written;
  if (!options_.overlap) stalls_.wait(weights.written);
}

}  // namespace zpp
