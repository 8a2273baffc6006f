#include "comm/levels.h"

namespace zpp {
namespace {

/// Members in each group of a level, 0 unless all groups hold equally many neighbours.
int members_per_group(const Topology& topology, int level, const std::vector<int>& members) {
  const int group_size = topology.group_size(level);
  std::vector<int> group_of;  // of each run of neighbours
  std::vector<int> lengths;
  for (int rank : members) {
    const int group = rank / group_size;
    if (group_of.empty() || group_of.back() != group) {
      group_of.push_back(group);
      lengths.push_back(0);
    }
    ++lengths.back();
  }
  std::sort(group_of.begin(), group_of.end());
  const bool torn = std::adjacent_find(group_of.begin(), group_of.end()) != group_of.end();
  const bool even =
      std::all_of(lengths.begin(), lengths.end(), [&](int length) { return length == lengths[0]; });
  return even && !torn ? lengths[0] : 0;
}

}  // namespace

std::vector<int> level_chain(const Topology& topology, const std::vector<int>& members) {
  const int size = static_cast<int>(members.size());
  std::vector<int> chain;
  for (int level = 1; level < topology.levels(); ++level) {
    const int inside = members_per_group(topology, level, members);
    if (inside > (chain.empty() ? 1 : chain.back()) && inside < size) chain.push_back(inside);
  }
  chain.push_back(size);
  return chain;
}

Blocks Blocks::at(std::span<const int64_t> ends, int64_t width) {
  Blocks blocks{ends.back(), 0, width, ends.data()};
  for (size_t i = 0; i < ends.size(); ++i) {
    blocks.per = std::max(blocks.per, blocks.length(static_cast<int>(i)));
  }
  return blocks;
}

Chunks::Chunks(const Blocks& blocks, int64_t bytes) {
  constexpr int64_t kUnit = 64;
  const int64_t wanted = bytes / blocks.width / kUnit * kUnit;
  length_ = std::max(kUnit, std::min(wanted, blocks.per));
  count_ = std::max<int64_t>(1, (blocks.per + length_ - 1) / length_);
}

}  // namespace zpp
