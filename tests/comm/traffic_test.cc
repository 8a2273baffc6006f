// What ranks send: the ledger against the network, the prediction and the formulas; and the choices
// that follow from it.
#include "comm/traffic.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <numeric>

#include "tests/comm/local_ranks.h"

namespace zpp {
namespace {

const std::vector<std::vector<int>> kTopologies = {{1}, {2}, {3}, {2, 4}, {3, 6}, {2, 4, 8}};
const std::vector<Algorithm> kAlgorithms = {Algorithm::kDirect, Algorithm::kRing,
                                            Algorithm::kTwoLevel, Algorithm::kTree};

std::vector<int> everybody(const Topology& topology) {
  std::vector<int> members(static_cast<size_t>(topology.world()));
  std::iota(members.begin(), members.end(), 0);
  return members;
}

std::vector<int64_t> minus(std::vector<int64_t> a, const std::vector<int64_t>& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] -= b[i];
  return a;
}

/// Runs one collective over buffers of `elements` f32 and returns what it is as a Collective.
Collective perform(Communicator& group, Operation operation, int64_t elements, int root) {
  std::vector<float> whole(static_cast<size_t>(elements));
  std::vector<float> other(static_cast<size_t>(elements));
  const View view = make_view(whole.data(), {elements}, DType::kF32);
  const View part = make_view(other.data(), {elements / group.size()}, DType::kF32);
  const View twin = make_view(other.data(), {elements}, DType::kF32);
  switch (operation) {
    case Operation::kAllGather:
      group.all_gather(part, view).synchronize();
      break;
    case Operation::kReduceScatter:
      group.reduce_scatter(view, part, ReduceOp::kSum).synchronize();
      break;
    case Operation::kAllReduce:
      group.all_reduce(view, ReduceOp::kSum).synchronize();
      break;
    case Operation::kBroadcast:
      group.broadcast(view, root).synchronize();
      break;
    case Operation::kAllToAll:
      group.all_to_all(view, twin).synchronize();
      break;
    case Operation::kBarrier:
      group.barrier().synchronize();
      return {.operation = operation};
  }
  return {.operation = operation, .bytes = 4 * elements, .element_bytes = 4, .root = root};
}

TEST(Traffic, LedgerNetworkAndPredictionAgreeToTheByte) {
  for (const auto& sizes : kTopologies) {
    const Topology topology = topology_of(sizes);
    for (Algorithm algorithm : kAlgorithms) {
      LocalRanksOptions options;
      options.links.force = to_string(algorithm);
      run_ranks(topology, options, [&](LocalRank& r) {
        for (int o = 0; o <= static_cast<int>(Operation::kBarrier); ++o) {
          const auto operation = static_cast<Operation>(o);
          if (!applies(algorithm, operation, topology, r.world.members())) continue;
          // An all-reduce that does not divide; a root in the middle.
          const int64_t odd = operation == Operation::kAllReduce ? 3 : 0;
          const int64_t elements = 13 * r.world.size() - odd;
          const auto before = r.network.sent_bytes(r.rank);
          r.ledger.reset();
          const Collective done = perform(r.world, operation, elements, r.world.size() / 2);
          const auto wire = minus(r.network.sent_bytes(r.rank), before);
          const std::string what =
              fmt::format("{} {} rank {}", to_string(algorithm), to_string(operation), r.rank);
          EXPECT_EQ(r.ledger.sent_bytes(), wire) << what;
          EXPECT_EQ(predicted_bytes(topology, r.world.members(), r.rank, done, algorithm), wire)
              << what;
          const auto entries = r.ledger.entries();
          ASSERT_EQ(entries.size(), 1u);
          EXPECT_EQ(entries.begin()->first, Ledger::Key("grads/world", operation));
          EXPECT_EQ(entries.begin()->second.calls, 1);
        }
      });
    }
  }
}

/// Bytes that leave the first node, and those that rank 0 sends inside it.
struct NodeTraffic {
  int64_t out = 0, inside = 0;
};
NodeTraffic node_traffic(const Topology& topology, Operation operation, int64_t bytes,
                         Algorithm algorithm) {
  NodeTraffic traffic;
  const std::vector<int> members = everybody(topology);
  for (int me = 0; me < topology.group_size(1); ++me) {
    const auto sent =
        predicted_bytes(topology, members, me, {.operation = operation, .bytes = bytes}, algorithm);
    for (size_t link = 2; link < sent.size(); ++link) traffic.out += sent[link];
    if (me == 0) traffic.inside = sent[1];
  }
  return traffic;
}

TEST(Traffic, TwoLevelCrossesNodesWithFTimesTheVolume) {
  for (const auto& [nodes, ranks] : std::map<int, int>{{2, 4}, {3, 2}, {4, 8}}) {
    const Topology topology = topology_of({ranks, nodes * ranks});
    const int64_t v = 1000 * nodes * ranks;
    for (Operation op : {Operation::kAllGather, Operation::kReduceScatter}) {
      const NodeTraffic two = node_traffic(topology, op, v, Algorithm::kTwoLevel);
      EXPECT_EQ(two.out, v * (nodes - 1) / nodes) << "f V";
      EXPECT_EQ(two.inside, v * (ranks - 1) / ranks) << "h V";
      const NodeTraffic direct = node_traffic(topology, op, v, Algorithm::kDirect);
      EXPECT_EQ(direct.out, ranks * v * (nodes - 1) / nodes) << "every rank fetches everything";
      EXPECT_EQ(node_traffic(topology, op, v, Algorithm::kRing).out,
                v * (nodes * ranks - 1) / (nodes * ranks));
    }
    EXPECT_EQ(node_traffic(topology, Operation::kAllReduce, v, Algorithm::kTwoLevel).out,
              2 * v * (nodes - 1) / nodes);
    EXPECT_EQ(node_traffic(topology, Operation::kAllToAll, v, Algorithm::kTwoLevel).out,
              ranks * v * (nodes - 1) / nodes);
  }
}

TEST(Traffic, EveryRankSendsTheSameInADirectGather) {
  const Topology topology = topology_of({3});
  for (int me = 0; me < 3; ++me) {
    EXPECT_EQ(
        predicted_bytes(topology, everybody(topology), me, {.bytes = 300}, Algorithm::kDirect),
        (std::vector<int64_t>{0, 200}));
  }
}

TEST(Choose, TakesTheTreeForSmallAndTwoLevelForLargeSums) {
  const Topology topology = topology_of({4, 8});
  const LinkModel model;
  const auto members = everybody(topology);
  EXPECT_EQ(choose(model, topology, members, Operation::kAllReduce, 8), Algorithm::kTree);
  EXPECT_EQ(choose(model, topology, members, Operation::kAllReduce, 64 << 20),
            Algorithm::kTwoLevel);
  EXPECT_EQ(choose(model, topology, members, Operation::kAllGather, 64 << 20),
            Algorithm::kTwoLevel);
  EXPECT_EQ(choose(model, topology, members, Operation::kBarrier, 0), Algorithm::kTree);
  EXPECT_EQ(choose(model, topology, {0, 1, 2, 3}, Operation::kAllGather, 64 << 20),
            Algorithm::kDirect)
      << "one node";
  EXPECT_EQ(choose(model, topology, {0, 1, 2, 3, 4, 5}, Operation::kAllGather, 64 << 20),
            Algorithm::kRing)
      << "uneven nodes";
}

TEST(Choose, AddsUpLargeBuffersOnceAndNotAtEveryStep) {
  const LinkModel model;
  for (const int ranks : {2, 4, 8}) {
    const Topology topology = topology_of({ranks});
    const auto members = everybody(topology);
    EXPECT_EQ(choose(model, topology, members, Operation::kAllReduce, 64), Algorithm::kTree);
    EXPECT_EQ(choose(model, topology, members, Operation::kAllReduce, 64 << 20),
              Algorithm::kDirect);
  }
}

TEST(Choose, ObeysForceWhereItApplies) {
  const Topology topology = topology_of({4, 8});
  LinkModel model;
  model.force = "ring";
  EXPECT_EQ(choose(model, topology, everybody(topology), Operation::kAllGather, 8),
            Algorithm::kRing);
  EXPECT_NE(choose(model, topology, everybody(topology), Operation::kAllToAll, 8),
            Algorithm::kRing);
  model.force = "fastest";
  EXPECT_THROW(check(model), Error);
}

TEST(MeasureLinks, FindsTheShapeOfTheLinksAndTellsAll) {
  LocalNetworkOptions network_options;
  network_options.shapes = {{}, {}, {.bytes_per_s = 200e6, .latency_s = 2e-3}};
  LocalRanksOptions options;
  options.network = network_options;
  std::mutex mutex;
  std::vector<LinkModel> models;
  run_ranks(topology_of({2, 4}), options, [&](LocalRank& r) {
    const LinkModel model = measure_links(r.grads_transport, r.topology, Millis(10000));
    const std::lock_guard lock(mutex);
    models.push_back(model);
  });
  ASSERT_EQ(models.size(), 4u);
  for (const LinkModel& model : models) {
    EXPECT_EQ(model.cost(2).bytes_per_s, models[0].cost(2).bytes_per_s);
    EXPECT_GE(model.cost(2).latency_s, 2e-3);
    EXPECT_LT(model.cost(2).latency_s, 10e-3);
    EXPECT_LE(model.cost(2).bytes_per_s, 201e6);
    EXPECT_GT(model.cost(2).bytes_per_s, 20e6);
  }
}

}  // namespace
}  // namespace zpp
