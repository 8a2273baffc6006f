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
/// "direct", "ring", "two-level", "tree".
const char* to_string(Algorithm algorithm);

/// Seconds for a message of b bytes on a link: latency_s + b / bytes_per_s. The ranks of a group
/// share the bandwidth of the links out of it, like the card of a node.
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

/// Errors: kInvalidArgument for a `force` that is no algorithm, costs that are not positive
void check(const LinkModel& model);

/// The cheapest algorithm for a collective of `bytes` (of the whole buffer) over `members`.
/// The same on all ranks for the same arguments.
Algorithm choose(const LinkModel& model, const Topology& topology, const std::vector<int>& members,
                 Operation operation, int64_t bytes);

/// Times small and large messages from rank 0 to a rank of each link class; all ranks get the result.
/// Collective over the world, while no collective is under way; blocks.
LinkModel measure_links(Transport& transport, const Topology& topology, Millis deadline);

}  // namespace zpp
