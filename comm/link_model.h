// What a message costs on each class of link, and which algorithm that makes best.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/topology.h"
#include "comm/transport.h"

namespace zpp {

enum class Algorithm : uint8_t {
  kDirect,    // every rank to every rank: one step, (P-1)/P of the buffer per rank
  kRing,      // neighbours only: P-1 steps, the same bytes, one connection at a time
  kTwoLevel,  // inside the nodes and between equal places of them: fewest bytes between nodes
  kTree,      // log2 P steps of the whole message: small ones
};
const char* to_string(Algorithm algorithm);

/// Seconds for a message of b bytes on a link: latency_s + b / bytes_per_s.
struct LinkCost {
  double latency_s = 2e-6;
  double bytes_per_s = 5e9;
};

struct LinkModel {
  /// By LinkClass, index 0 unused; missing classes take the last.
  std::vector<LinkCost> links = {{}, {}, {20e-6, 1e9}};
  /// Tests and benchmarks: use this one wherever it applies; unset (empty): the cheapest.
  std::string force;

  LinkCost cost(LinkClass link) const;
};

/// The cheapest algorithm for a collective of `bytes` (of the whole buffer) over `members`.
/// The same on all ranks for the same arguments.
Algorithm choose(const LinkModel& model, const Topology& topology, const std::vector<int>& members,
                 Operation operation, int64_t bytes);

/// Times small and large messages between the ranks of each link class and agrees on the result
/// (rank 0's). Collective over the world; blocks.
LinkModel measure_links(Transport& transport, const Topology& topology, Millis deadline);

}  // namespace zpp
