#include "comm/link_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <limits>
#include <optional>

#include "comm/levels.h"
#include "comm/traffic.h"

namespace zpp {
namespace {

constexpr std::array kAlgorithms = {Algorithm::kDirect, Algorithm::kRing, Algorithm::kTwoLevel,
                                    Algorithm::kTree};

std::optional<Algorithm> algorithm_named(const std::string& name) {
  for (Algorithm algorithm : kAlgorithms) {
    if (name == to_string(algorithm)) return algorithm;
  }
  return std::nullopt;
}

/// Messages that start together cost one latency and this share of it for each further one.
constexpr double kPosting = 0.25;
/// Bytes of received numbers that one thread adds to its own per second.
constexpr double kAddedPerSecond = 10e9;

class Estimate {
 public:
  Estimate(const LinkModel& model, const Topology& topology, const std::vector<int>& members,
           const Collective& collective)
      : model_(model), topology_(topology), members_(members), collective_(collective) {}

  double seconds(Algorithm algorithm) const {
    return transfer_seconds(algorithm) + latency_seconds(algorithm) + adding_seconds(algorithm);
  }

 private:
  int size() const { return static_cast<int>(members_.size()); }

  /// The busiest rank inside the innermost groups, the busiest group on the links out of one.
  double transfer_seconds(Algorithm algorithm) const {
    double seconds = 0;
    std::vector<std::vector<int64_t>> sent;
    for (int me = 0; me < size(); ++me) {
      sent.push_back(predicted_bytes(topology_, members_, me, collective_, algorithm));
    }
    for (LinkClass link = 1; link <= topology_.levels(); ++link) {
      std::vector<int64_t> by_group(static_cast<size_t>(topology_.world()));
      for (int me = 0; me < size(); ++me) {
        const int group = members_[static_cast<size_t>(me)] / topology_.group_size(link - 1);
        by_group[static_cast<size_t>(group)] +=
            sent[static_cast<size_t>(me)][static_cast<size_t>(link)];
      }
      const int64_t most = *std::max_element(by_group.begin(), by_group.end());
      seconds += static_cast<double>(most) / model_.cost(link).bytes_per_s;
    }
    return seconds;
  }

  /// The tree adds up the whole buffer at every step, the others about all of it once.
  double adding_seconds(Algorithm algorithm) const {
    const bool adds = collective_.operation == Operation::kAllReduce ||
                      collective_.operation == Operation::kReduceScatter;
    if (!adds) return 0;
    const auto bytes = static_cast<double>(collective_.bytes);
    const double steps =
        algorithm == Algorithm::kTree ? std::ceil(std::log2(size())) : 1 - 1.0 / size();
    return steps * bytes / kAddedPerSecond;
  }

  double latency(int member) const {  // from the first one
    const LinkClass link = topology_.link(members_[0], members_[static_cast<size_t>(member)]);
    return link == 0 ? 0 : model_.cost(link).latency_s;
  }

  /// Rounds to the members at distance 1, 2, 4, ... below `ways` peers, `stride` members apart.
  double doubling_seconds(int ways, int stride) const {
    double seconds = 0;
    for (int distance = 1; distance < ways; distance *= 2) seconds += latency(distance * stride);
    return seconds;
  }

  double latency_seconds(Algorithm algorithm) const {
    if (algorithm == Algorithm::kRing) return passes() * (size() - 1) * farthest_latency();
    if (algorithm == Algorithm::kTree) return doubling_seconds(size(), 1);
    const bool two_level = algorithm == Algorithm::kTwoLevel;
    const Levels levels(two_level ? level_chain(topology_, members_) : std::vector<int>{size()}, 0);
    double seconds = 0;
    for (int j = 0; j < levels.count(); ++j) {
      const int peers = levels.ways(j) - 1;
      if (two_level && collective_.operation == Operation::kBroadcast) {
        seconds += doubling_seconds(levels.ways(j), levels.inner(j));
      } else if (peers > 0) {
        const double messages = static_cast<double>(peers) * levels.pieces(j);
        seconds += (1 + kPosting * (messages - 1)) * latency(levels.peer(j, peers));
      }
    }
    return passes() * seconds;
  }

  double farthest_latency() const {
    double farthest = 0;
    for (int member = 0; member < size(); ++member) farthest = std::max(farthest, latency(member));
    return farthest;
  }
  int passes() const { return collective_.operation == Operation::kAllReduce ? 2 : 1; }

  const LinkModel& model_;
  const Topology& topology_;
  const std::vector<int>& members_;
  const Collective& collective_;
};

}  // namespace

const char* to_string(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kDirect:
      return "direct";
    case Algorithm::kRing:
      return "ring";
    case Algorithm::kTwoLevel:
      return "two-level";
    case Algorithm::kTree:
      return "tree";
  }
  return "unknown algorithm";
}

LinkCost LinkModel::cost(LinkClass link) const {
  if (links.empty()) return {};
  const size_t index = std::min(static_cast<size_t>(std::max(link, 0)), links.size() - 1);
  return links[index];
}

void check(const LinkModel& model) {
  if (!model.force.empty() && !algorithm_named(model.force)) {
    throw Error(Code::kInvalidArgument,
                fmt::format("link model: \"{}\" is no algorithm; there are direct, ring, two-level "
                            "and tree",
                            model.force));
  }
  for (const LinkCost& cost : model.links) {
    if (cost.latency_s >= 0 && cost.bytes_per_s > 0) continue;
    throw Error(Code::kInvalidArgument, fmt::format("link model: a link of {} s and {} bytes/s",
                                                    cost.latency_s, cost.bytes_per_s));
  }
}

Algorithm choose(const LinkModel& model, const Topology& topology, const std::vector<int>& members,
                 Operation operation, int64_t bytes) {
  const std::optional<Algorithm> forced = algorithm_named(model.force);
  if (forced && applies(*forced, operation, topology, members)) return *forced;
  const Collective collective{.operation = operation, .bytes = bytes};
  const Estimate estimate(model, topology, members, collective);
  Algorithm best = operation == Operation::kBarrier ? Algorithm::kTree : Algorithm::kDirect;
  if (members.size() < 2) return best;
  double least = std::numeric_limits<double>::infinity();
  for (Algorithm algorithm : kAlgorithms) {
    if (!applies(algorithm, operation, topology, members)) continue;
    const double seconds = estimate.seconds(algorithm);
    if (seconds < least) {
      least = seconds;
      best = algorithm;
    }
  }
  return best;
}

namespace {

/// Messages of measure_links, on a channel of its own.
class Probe {
 public:
  Probe(Transport& transport, Millis deadline) : transport_(transport), deadline_(deadline) {}

  void send(int peer, std::span<const std::byte> bytes) {
    transport_.wait(transport_.send(peer, stamp(), bytes), deadline_);
  }
  void receive(int peer, std::span<std::byte> bytes) {
    transport_.wait(transport_.receive(peer, stamp(), bytes), deadline_);
  }

 private:
  static constexpr uint32_t kChannel = 1001;
  static Envelope stamp() { return {kChannel, Operation::kBroadcast, 0, 0}; }

  Transport& transport_;
  const Millis deadline_;
};

/// Best time of a message there and an empty one back, by the rank that sends first.
double round_trip(Probe& probe, bool first, int peer, std::span<std::byte> bytes, int rounds) {
  double best = std::numeric_limits<double>::infinity();
  for (int round = 0; round < rounds; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    if (first) {
      probe.send(peer, bytes);
      probe.receive(peer, {});
    } else {
      probe.receive(peer, bytes);
      probe.send(peer, {});
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    best = std::min(best, seconds.count());
  }
  return best;
}

LinkCost measure_link(Probe& probe, bool first, int peer) {
  constexpr size_t kLarge = size_t{4} << 20;
  std::vector<std::byte> bytes(kLarge);
  const double empty = round_trip(probe, first, peer, {}, 20);
  const double large = round_trip(probe, first, peer, bytes, 4);
  constexpr double kLeast = 1e-9;  // clocks are not finer
  return {std::max(empty / 2, kLeast),
          static_cast<double>(kLarge) / std::max(large - empty, kLeast)};
}

}  // namespace

LinkModel measure_links(Transport& transport, const Topology& topology, Millis deadline) {
  Probe probe(transport, deadline);
  LinkModel model;
  model.links.assign(static_cast<size_t>(topology.levels()) + 1, LinkCost{});
  const int rank = transport.rank();
  for (LinkClass link = 1; link <= topology.levels(); ++link) {
    // The first rank that is that far from rank 0; none if the groups are equal.
    const int peer = topology.group_size(link - 1);
    const bool exists = topology.group_size(link) > peer;
    LinkCost& cost = model.links[static_cast<size_t>(link)];
    if (!exists) {
      cost = model.links[static_cast<size_t>(link) - 1];
    } else if (rank == 0) {
      cost = measure_link(probe, true, peer);
    } else if (rank == peer) {
      measure_link(probe, false, 0);
    }
  }
  const std::span<std::byte> table = std::as_writable_bytes(std::span(model.links));
  for (int peer = 1; peer < topology.world() && rank == 0; ++peer) probe.send(peer, table);
  if (rank != 0) probe.receive(0, table);
  return model;
}

}  // namespace zpp
