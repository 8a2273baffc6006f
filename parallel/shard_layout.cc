#include "parallel/shard_layout.h"

namespace zpp {
namespace {

Range part_of(const Range& whole, int64_t parts, int64_t at) {
  const int64_t size = whole.size() / parts;
  return {whole.begin + at * size, whole.begin + (at + 1) * size};
}

}  // namespace

ShardLayout::ShardLayout(const Topology& topology, const ShardLevels& levels, int rank)
    : params_ranks_(topology.group_size(levels.params)),
      grads_ranks_(topology.group_size(levels.grads)),
      optimizer_ranks_(topology.group_size(levels.optimizer)),
      params_place_(rank % params_ranks_),
      grads_place_(rank % grads_ranks_ / params_ranks_),
      optimizer_place_(rank % optimizer_ranks_ / grads_ranks_),
      first_copy_(rank < optimizer_ranks_) {}

Range ShardLayout::params(int64_t flat) const {
  return part_of({0, flat}, params_ranks_, params_place_);
}

Range ShardLayout::grads(int64_t flat) const {
  return part_of(params(flat), grads_ranks_ / params_ranks_, grads_place_);
}

Range ShardLayout::optimizer(int64_t flat) const {
  return part_of(grads(flat), optimizer_ranks_ / grads_ranks_, optimizer_place_);
}

std::vector<int64_t> step_traffic(const Topology& topology, const ShardLevels& levels,
                                  const std::vector<UnitTraffic>& units, int64_t micro_batches,
                                  int64_t wire_bytes) {
  std::vector<int64_t> sent(static_cast<size_t>(topology.levels()) + 1, 0);
  for (int c = 1; c <= topology.levels(); ++c) {
    for (const UnitTraffic& unit : units) {
      const int64_t bytes = unit.flat * wire_bytes;
      const int64_t once = bytes / topology.group_size(c - 1) - bytes / topology.group_size(c);
      int64_t times = 0;
      if (c <= levels.params) times += (unit.kept ? 1 : 2) * micro_batches;
      if (c <= levels.grads) times += micro_batches;
      if (c > levels.grads) times += c <= levels.optimizer ? 1 : 2;
      if (c > levels.params && c <= levels.optimizer) times += 1;
      sent[static_cast<size_t>(c)] += times * once;
    }
  }
  return sent;
}

}  // namespace zpp
