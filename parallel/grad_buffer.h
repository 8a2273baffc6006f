// Gradients of all units: where kernels write them, and how they become the sum over all ranks.
//
// Where gradients are spread, a unit's flat gradient lives in one of two buffers from its backward
// pass until it has been reduced; this rank's part of the sum is kept in f32 (f64 for f64 models)
// and adds up over the micro-batches. Where they are not, each unit has a buffer of its own for the
// whole step. What travels is rounded to the model's compute dtype, or coded as
// ZeroWires says; sums are f32. The last
// micro-batch's reduction goes on to the part that the optimizer works on, over all ranks of the
// world, while the backward pass continues.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "core/runtime.h"
#include "model/nn/parameter.h"
#include "parallel/rank_groups.h"
#include "parallel/stall_clock.h"
#include "parallel/zero_wires.h"

namespace zpp {

struct GradBuffersOptions {
  bool overlap = true;
  ZeroWires wires = {};
  uint64_t seed = 0;  // of stochastic rounding
};

class GradBuffers {
 public:
  /// Allocates. `table` must be laid out; all arguments must outlive this.
  GradBuffers(Runtime& runtime, ParameterTable& table, const RankGroups& groups, StallClock& stalls,
              GradBuffersOptions options);

  /// Step number `step` of training starts: what was there is replaced.
  void restart(int64_t step);
  /// A pass over one micro-batch starts; `last` of its step.
  void begin(bool last);
  /// The unit has been run forward and will be met again in the backward pass.
  void expect(const ParameterUnit& unit);
  /// Binds the unit's gradients for its backward pass.
  void bind(ParameterUnit& unit);
  /// The unit's backward pass has been enqueued: releases and reduces its gradients.
  void reduce(ParameterUnit& unit);
  /// After the last micro-batch: finishes the units that it has not met. From now on work on the
  /// compute stream sees the sums in part().
  void finish();

  /// The optimizer's part of unit i's gradient.
  View part(size_t unit) const { return units_[unit].part; }
  /// Of what is kept from step to step.
  int64_t bytes() const { return bytes_; }
  /// Of the buffers that gradients pass through.
  int64_t passing_bytes() const;

 private:
  struct Buffer {
    Tensor memory;
    bool bound = false;
    Event done;  // the last reduction from it
  };
  struct UnitGrads {
    ParameterUnit* unit = nullptr;
    std::shared_ptr<const Segments> segments;
    Tensor kept;               // this rank's part, or all of it where gradients are not spread
    View part;                 // of `kept`, the optimizer's
    Buffer* buffer = nullptr;  // between bind() and reduce()
    int64_t expected = 0;      // backward passes to come in this micro-batch
    bool started = false;      // `kept` holds something of this step
    bool finished = false;     // reduced over the world
    Event done;
  };

  bool spread() const { return groups_.layout().grads_ranks() > 1; }
  void add_unit(ParameterUnit& unit);
  UnitGrads& of(const ParameterUnit& unit) { return units_[index_.at(&unit)]; }
  /// A buffer of the ring that no unit is bound to.
  Buffer& next_buffer(const ParameterUnit& unit);
  /// A sum over the ranks between two levels.
  struct Hop {
    Communicator* group = nullptr;  // null: one rank
    int inner = 0, outer = 0;
  };
  CodedReduction coding(const UnitGrads& grads, const Hop& hop, int64_t first) const;
  /// Sums `in`, which begins at `first` of the unit's flat gradient; returns this rank's part of the
  /// sum, which lies in `in`.
  View reduce_scatter(const UnitGrads& grads, const Hop& hop, const View& in, int64_t first,
                      const std::vector<Event>& after);
  void all_reduce(Communicator& group, const View& inout, const std::vector<Event>& after);
  void reduce_to_kept(UnitGrads& grads, const View& full);
  void reduce_to_world(UnitGrads& grads);
  /// Keeps the compute stream from going on before `event` when nothing is to overlap.
  void maybe_serialise(const Event& event);

  Runtime& runtime_;
  const RankGroups& groups_;
  StallClock& stalls_;
  const GradBuffersOptions options_;
  std::vector<UnitGrads> units_;
  std::map<const ParameterUnit*, size_t> index_;
  std::vector<Buffer> ring_;  // of the units inside
  Buffer root_;               // bound from the beginning of the backward pass to its end
  size_t next_ = 0;           // of ring_
  Tensor wire_;               // rounded gradients on their way; used by one reduction at a time
  bool last_ = false;
  int64_t step_ = 0, micro_batch_ = 0;
  int64_t bytes_ = 0;
};

}  // namespace zpp
