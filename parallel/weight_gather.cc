#include "parallel/weight_gather.h"

#include <algorithm>

#include "kernels/elementwise.h"

namespace zpp {

WeightGather::WeightGather(Runtime& runtime, const ParameterTable& table, const RankGroups& groups,
                           const ZeroWires& wires)
    : runtime_(runtime), groups_(groups), wires_(wires) {
  int64_t largest = 0;
  for (const auto& unit : table.units()) {
    add_unit(*unit);
    for (const Cells& cells :
         {units_.back().params, units_.back().grads, units_.back().optimizer}) {
      if (cells) largest = std::max(largest, cells->bytes());
    }
  }
  if (largest > 0) packed_ = runtime.tensor({largest}, DType::kU8);
}

WeightGather::Cells WeightGather::cells_of(const Communicator* group, int inner, int outer,
                                           const Segments& segments, const Range& range,
                                           DType dtype) const {
  if (group == nullptr || !wires_.codes_weights(inner, outer)) return nullptr;
  return std::make_shared<PackedCells>(segments, range.begin, range.end, group->size(),
                                       wires_.weights, dtype);
}

void WeightGather::add_unit(const ParameterUnit& unit) {
  const PlaneGroups& groups = groups_.weights();
  const ShardLevels& levels = groups_.levels();
  const ShardLayout& layout = groups_.layout();
  const auto segments = segments_of(unit);
  UnitGather gather;
  gather.flat = unit.flat_numel();
  gather.frozen = unit.frozen();
  const DType dtype = unit.dtype();
  gather.params = cells_of(groups.params, 0, levels.params, *segments, {0, gather.flat}, dtype);
  gather.grads = cells_of(groups.grads, levels.params, levels.grads, *segments,
                          layout.params(gather.flat), dtype);
  gather.optimizer = cells_of(groups.optimizer, levels.grads, levels.optimizer, *segments,
                              layout.grads(gather.flat), dtype);
  if (wires_.replica) {
    if (wires_.replica_coded) {
      const Range mine = replica_range(gather.params->count());
      gather.replica = runtime_.tensor({gather.params->offset(static_cast<int>(mine.end)) -
                                        gather.params->offset(static_cast<int>(mine.begin))},
                                       DType::kU8);
    } else {
      gather.replica = runtime_.tensor({replica_range(gather.flat).size()}, dtype);
    }
    replica_bytes_ += gather.replica.view().bytes();
  }
  units_.push_back(std::move(gather));
}

Range WeightGather::replica_range(int64_t count) const {
  const int64_t ranks = groups_.topology().group_size(1);
  const int64_t place = groups_.rank() % ranks;
  return {count / ranks * place, count / ranks * (place + 1)};
}

Event WeightGather::gather(size_t unit, const View& kept, const View& to,
                           const std::vector<Event>& after) {
  UnitGather& gather = units_[unit];
  Stream& stream = *groups_.weights().stream;
  for (const Event& event : after) stream.wait(event);
  if (gather.replica_valid) return gather_replica(gather, to);
  Communicator& params = *groups_.weights().params;
  const Event ready = gather.params ? gather_coded(params, gather.params, kept, to)
                                    : params.all_gather(kept, to).done();
  if (wires_.replica) keep_replica(gather, to);
  return ready;
}

Event WeightGather::gather_coded(Communicator& group, const Cells& cells, const View& own,
                                 const View& all) {
  const View whole = packed(*cells);
  const int me = group.rank();
  encode_cells(group.stream(), cells, me, 1, own, whole);
  group.all_gather_parts(whole.slice(0, cells->offset(me), cells->offset(me + 1)), whole,
                         cells->ends(group.size()));
  decode_cells(group.stream(), cells, whole, all);
  return group.stream().record();
}

Event WeightGather::gather_replica(UnitGather& unit, const View& to) {
  Stream& stream = *groups_.weights().stream;
  const bool coded = wires_.replica_coded;
  const View whole = coded ? packed(*unit.params) : to;
  if (Communicator* node = groups_.weights().node) {
    if (coded) {
      node->all_gather_parts(unit.replica.view(), whole, unit.params->ends(node->size()));
    } else {
      node->all_gather(unit.replica.view(), whole);
    }
  } else {
    kernels::copy(stream, unit.replica.view(), {whole});
  }
  if (coded) decode_cells(stream, unit.params, whole, to);
  return stream.record();
}

void WeightGather::keep_replica(UnitGather& unit, const View& all) {
  View whole = all;
  Range mine = replica_range(unit.flat);
  if (wires_.replica_coded) {
    whole = packed(*unit.params);
    mine = replica_range(unit.params->count());
    mine = {unit.params->offset(static_cast<int>(mine.begin)),
            unit.params->offset(static_cast<int>(mine.end))};
  }
  kernels::copy(*groups_.weights().stream, whole.slice(0, mine.begin, mine.end),
                {unit.replica.view()});
  unit.replica_valid = true;
}

Event WeightGather::publish(size_t unit, const View& kept, const Event& written) {
  const UnitGather& gather = units_[unit];
  const ShardLayout& layout = groups_.layout();
  const PlaneGroups& groups = groups_.weights();
  const Range params = layout.params(gather.flat);
  Event done = written;
  const auto step = [&](Communicator* group, const Cells& cells, const Range& from,
                        const Range& to) {
    if (group == nullptr) return;
    const View own = kept.slice(0, from.begin - params.begin, from.end - params.begin);
    const View all = kept.slice(0, to.begin - params.begin, to.end - params.begin);
    group->stream().wait(done);
    done = cells ? gather_coded(*group, cells, own, all) : group->all_gather(own, all).done();
  };
  step(groups.optimizer, gather.optimizer, layout.optimizer(gather.flat),
       layout.grads(gather.flat));
  step(groups.grads, gather.grads, layout.grads(gather.flat), params);
  return done;
}

bool WeightGather::publishes_codes() const {
  return std::any_of(units_.begin(), units_.end(),
                     [](const UnitGather& unit) { return unit.grads || unit.optimizer; });
}

void WeightGather::drop_replicas() {
  for (UnitGather& unit : units_) unit.replica_valid &= unit.frozen;
}

}  // namespace zpp
