#include "parallel/shard_layout.h"

#include <gtest/gtest.h>

namespace zpp {
namespace {

Topology topology_of(const std::vector<int>& sizes) { return Topology::nested(sizes); }

TEST(ShardLayout, PartsOfEveryKindTileTheBufferAndNest) {
  for (const std::vector<int>& sizes : {std::vector<int>{2, 4}, {3, 6}, {2, 4, 8}, {5}}) {
    const Topology topology = topology_of(sizes);
    const int top = topology.levels();
    for (int p = 0; p <= top; ++p) {
      for (int g = p; g <= top; ++g) {
        for (int o = g; o <= top; ++o) {
          int64_t params = 0, grads = 0, optimizer = 0, counted = 0;
          const int64_t flat = ShardLayout::kAlignment * topology.world() * 3;
          for (int rank = 0; rank < topology.world(); ++rank) {
            const ShardLayout layout(topology, {p, g, o}, rank);
            const Range a = layout.params(flat), b = layout.grads(flat), c = layout.optimizer(flat);
            EXPECT_LE(a.begin, b.begin);
            EXPECT_LE(b.begin, c.begin);
            EXPECT_LE(c.end, b.end);
            EXPECT_LE(b.end, a.end);
            EXPECT_EQ(c.begin % ShardLayout::kAlignment, 0);
            params += a.size();
            grads += b.size();
            optimizer += c.size();
            counted += layout.counts() ? c.size() : 0;
          }
          EXPECT_EQ(params, flat * topology.world() / topology.group_size(p));
          EXPECT_EQ(grads, flat * topology.world() / topology.group_size(g));
          EXPECT_EQ(optimizer, flat * topology.world() / topology.group_size(o));
          EXPECT_EQ(counted, flat);
        }
      }
    }
  }
}

TEST(ShardLayout, CopiesThatCountAreDisjoint) {
  const Topology topology = topology_of({2, 4, 8});
  std::vector<int> seen(8 * 64 * 2, 0);
  for (int rank = 0; rank < 8; ++rank) {
    const ShardLayout layout(topology, {1, 1, 2}, rank);
    const Range part = layout.optimizer(static_cast<int64_t>(seen.size()));
    for (int64_t i = part.begin; layout.counts() && i < part.end; ++i)
      ++seen[static_cast<size_t>(i)];
  }
  EXPECT_EQ(seen, std::vector<int>(seen.size(), 1));
}

/// Of `volume` elements of two bytes on N nodes of n: what leaves a node, and what leaves a rank
/// inside its node.
std::pair<int64_t, int64_t> node_and_rank(const ShardLevels& levels, int64_t volume, int64_t k) {
  const Topology topology = topology_of({4, 8});
  const std::vector<int64_t> sent =
      step_traffic(topology, levels, {{.flat = volume, .kept = false}}, k, 2);
  return {4 * sent[2], sent[1]};
}

TEST(ShardLayout, TrafficOfThePresetsIsThatOfTheLiterature) {
  // M bytes of 16-bit values; f = 1/2 of them cross between two nodes, h = 3/4 between four ranks.
  const int64_t volume = 1 << 20, m = 2 * volume, f_m = m / 2, h_m = m * 3 / 4;
  for (const int64_t k : {1, 4}) {
    EXPECT_EQ(node_and_rank({0, 0, 0}, volume, k), std::pair(2 * f_m, 2 * h_m)) << "ddp";
    EXPECT_EQ(node_and_rank({0, 0, 2}, volume, k), std::pair(2 * f_m, 2 * h_m)) << "zero1";
    EXPECT_EQ(node_and_rank({0, 2, 2}, volume, k), std::pair((k + 1) * f_m, (k + 1) * h_m));
    EXPECT_EQ(node_and_rank({2, 2, 2}, volume, k), std::pair(3 * k * f_m, 3 * k * h_m)) << "zero3";
    EXPECT_EQ(node_and_rank({1, 1, 1}, volume, k), std::pair(2 * f_m, 3 * k * h_m)) << "hsdp";
    EXPECT_EQ(node_and_rank({1, 1, 2}, volume, k), std::pair(2 * f_m, 3 * k * h_m)) << "hybrid";
  }
}

TEST(ShardLayout, AUnitKeptBetweenForwardAndBackwardIsGatheredOnce) {
  const Topology topology = topology_of({2});
  EXPECT_EQ(step_traffic(topology, {1, 1, 1}, {{.flat = 1000, .kept = true}}, 3, 4)[1],
            3 * 2 * 2000);
}

}  // namespace
}  // namespace zpp
