// How the ranks of a job learn of each other.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/store.h"
#include "comm/topology.h"

namespace zpp {

/// This rank's place in a job, agreed on through the store.
struct Rendezvous {
  int rank = 0;
  /// By rank. Ranks with the same name share memory and see each other's process numbers: where two
  /// machines or containers have one name, a suffix tells them apart.
  std::vector<std::string> hosts;
  std::vector<int64_t> pids;  // by rank
  Topology topology;

  int world() const { return static_cast<int>(hosts.size()); }
  /// "rank 3 (host gpu7, pid 4711)"
  std::string describe(int other) const;
};

/// Publishes this rank's host and pid and collects everybody's. `nested` empty: nodes are the hosts;
/// else as for Topology::nested, the last one being `world`.
/// Blocks until all ranks have come.
/// Errors: kTimeout naming the ranks that are missing; kInvalidArgument when another process already
///         came as this rank, or what Topology refuses
Rendezvous meet(Store& store, int rank, int world, std::span<const int> nested, Millis timeout);

/// What every rank publishes under `name`, in rank order. Blocks until all have.
/// Errors: kTimeout naming the first rank that is missing
std::vector<std::string> exchange_texts(Store& store, const Rendezvous& place,
                                        const std::string& name, const std::string& mine,
                                        Millis timeout);

}  // namespace zpp
