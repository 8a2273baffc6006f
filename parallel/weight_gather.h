// Where the weights of a unit come from when their parts are spread over ranks: in the form that
// they travel in, and from the replica in the node where there is one.
//
// Everything here is enqueued on the stream of the weights, one after the other: what a gather leaves
// in the replica, or needs a buffer for, no other can touch meanwhile.
#pragma once

#include <memory>
#include <vector>

#include "comm/packet.h"
#include "core/runtime.h"
#include "model/nn/parameter.h"
#include "parallel/rank_groups.h"
#include "parallel/zero_wires.h"

namespace zpp {

class WeightGather {
 public:
  /// Allocates. `table` must be laid out; all arguments must outlive this.
  WeightGather(Runtime& runtime, const ParameterTable& table, const RankGroups& groups,
               const ZeroWires& wires);

  /// Gathers all of unit i's weights into `to` once the events are complete: from the ranks that
  /// share the parameters, or from those of the node if nothing has changed since the last time.
  /// Every rank, the owner of a part included, gets what the wire format makes of it.
  /// Shapes:  kept (this rank's part)   to (flat_numel)
  Event gather(size_t unit, const View& kept, const View& to, const std::vector<Event>& after);
  /// Gathers what the optimizer has made of its part, at `written`, to the ranks that keep it.
  /// Shapes:  kept (this rank's part of the parameters)
  Event publish(size_t unit, const View& kept, const Event& written);
  /// The weights have been updated: from now on gathers go to their owners again, except for units
  /// that are frozen.
  void drop_replicas();
  /// The replica of unit i, frozen or not, is stale: its weights were changed by something else than
  /// an update.
  void drop_replica(size_t unit) { units_[unit].replica_valid = false; }
  /// Whether publish() codes: then what it leaves in `kept` is not what the optimizer wrote.
  bool publishes_codes() const;

  int64_t replica_bytes() const { return replica_bytes_; }
  /// Of the buffer that packets pass through.
  int64_t passing_bytes() const { return packed_ ? packed_.view().bytes() : 0; }

 private:
  using Cells = std::shared_ptr<const PackedCells>;
  struct UnitGather {
    int64_t flat = 0;
    bool frozen = false;
    Cells params, grads, optimizer;  // of the gather in each group; null: goes as it is
    Tensor replica;
    bool replica_valid = false;
  };
  void add_unit(const ParameterUnit& unit);
  Cells cells_of(const Communicator* group, int inner, int outer, const Segments& segments,
                 const Range& range, DType dtype) const;
  Event gather_coded(Communicator& group, const Cells& cells, const View& own, const View& all);
  Event gather_replica(UnitGather& unit, const View& to);
  void keep_replica(UnitGather& unit, const View& all);
  View packed(const PackedCells& cells) const { return packed_.view().slice(0, 0, cells.bytes()); }
  /// The part of `count` equal ones that this rank keeps a replica of.
  Range replica_range(int64_t count) const;

  Runtime& runtime_;
  const RankGroups& groups_;
  const ZeroWires& wires_;
  std::vector<UnitGather> units_;
  Tensor packed_;
  int64_t replica_bytes_ = 0;
};

}  // namespace zpp
