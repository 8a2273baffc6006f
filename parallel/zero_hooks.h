// How a model's units get their weights and give away their gradients when both are spread over
// ranks.
//
// A rank keeps its part of each unit's weights. Before a unit runs, the whole is gathered into a
// slot on a stream of its own; the order of units, recorded in the first pass, tells which to gather
// ahead. The unit that ends the forward pass stays for the backward pass, and the root, which is
// around all others, for both. Where weights are not spread, they stay bound.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/runtime.h"
#include "model/nn/unit.h"
#include "parallel/gather_slots.h"
#include "parallel/grad_buffer.h"
#include "parallel/rank_groups.h"
#include "parallel/stall_clock.h"
#include "parallel/unit_trace.h"
#include "parallel/weight_gather.h"

namespace zpp {

struct ZeroHooksOptions {
  int64_t prefetch_units = 1;
  bool overlap = true;
  ZeroWires wires = {};
  uint64_t seed = 0;  // of stochastic rounding
  /// Told once when units run in another order than before.
  std::function<void(const std::string&)> warn = {};
};

class ZeroHooks final : public UnitHooks {
 public:
  /// Lays out the units of `table` and allocates weights and gradients. All arguments must outlive
  /// this.
  ZeroHooks(Runtime& runtime, ParameterTable& table, const RankGroups& groups,
            ZeroHooksOptions options);

  enum class Pass : uint8_t {
    kForward,    // evaluation
    kMicro,      // one micro-batch of several
    kLastMicro,  // the last of its step
  };
  void begin(Pass pass);
  void before_forward(ParameterUnit& unit) override;
  void after_forward(ParameterUnit& unit) override;
  void before_backward(ParameterUnit& unit) override;
  void after_backward(ParameterUnit& unit) override;

  GradBuffers& grads() { return grads_; }
  const GradBuffers& grads() const { return grads_; }
  const ZeroWires& wires() const { return options_.wires; }
  /// Whether kept weights are what the wire format makes of the optimizer's.
  bool publishes_codes() const { return gather_.publishes_codes(); }
  /// The optimizer's part of unit i's weights, in the compute dtype.
  View optimizer_part(size_t unit) const;
  /// The part of unit i's weights that this rank keeps, for work enqueued on the compute stream from
  /// now on, and where in the unit it lies.
  View kept(size_t unit);
  Range kept_range(size_t unit) const { return units_[unit].range; }

  /// After this the compute stream may write to the kept weights.
  void before_update();
  /// The compute stream has been given the update of unit i's optimizer part: gathers the updated
  /// weights back to those who keep them.
  void after_update(size_t unit);
  /// Weights have been updated: replicas of them in the node are not used any more. Not needed after
  /// an update that was skipped.
  void weights_updated() { gather_.drop_replicas(); }
  /// The same for unit i, changed by hand.
  void weights_changed(size_t unit) { gather_.drop_replica(unit); }

  /// Of the units entered in the last pass.
  uint64_t trace_hash() const { return training_trace_.hash(); }
  StallClock& stalls() { return stalls_; }
  const StallClock& stalls() const { return stalls_; }
  int64_t weight_bytes() const { return weight_bytes_; }
  int64_t replica_bytes() const { return gather_.replica_bytes(); }
  /// Of the buffers that weights and gradients of a few units at a time pass through.
  int64_t passing_bytes() const {
    return slots_.bytes() + root_slot_.bytes() + gather_.passing_bytes() + grads_.passing_bytes();
  }
  /// Most units beside the root whose gathered weights were alive at once; 0 without gathering.
  int64_t peak_units() const { return spread() ? slots_.peak_units() : 0; }

 private:
  struct UnitWeights {
    ParameterUnit* unit = nullptr;
    Tensor kept;
    Range range;
    Event written;  // by initialisation or the optimizer, on whatever stream
  };

  bool spread() const { return groups_.layout().params_ranks() > 1; }
  bool is_root(const ParameterUnit& unit) const { return &unit == &table_.root(); }
  UnitTrace& trace() { return pass_ == Pass::kForward ? forward_trace_ : training_trace_; }
  void add_unit(ParameterUnit& unit);
  void enter(ParameterUnit& unit);
  void enter_root();
  void leave(ParameterUnit& unit, GatherSlots& slots);
  void follow_trace(ParameterUnit& unit);
  void prefetch();
  GatherSlots::Slot& fetch(ParameterUnit& unit);
  void start(GatherSlots::Slot& slot);
  void bind(GatherSlots::Slot& slot);

  Runtime& runtime_;
  ParameterTable& table_;
  const RankGroups& groups_;
  const ZeroHooksOptions options_;
  StallClock stalls_;
  std::vector<UnitWeights> units_;
  std::map<const ParameterUnit*, size_t> index_;
  GatherSlots slots_, root_slot_;
  WeightGather gather_;
  GradBuffers grads_;
  UnitTrace training_trace_, forward_trace_;
  Pass pass_ = Pass::kForward;
  Event last_gather_;
  bool warned_ = false;
  int64_t weight_bytes_ = 0;
};

}  // namespace zpp
