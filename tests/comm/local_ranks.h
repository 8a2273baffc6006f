// Ranks as threads of the test: each with a runtime and two communication planes.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "comm/flight_record.h"
#include "comm/host_communicator.h"
#include "comm/ledger.h"
#include "comm/local_transport.h"
#include "comm/mesh.h"
#include "core/runtime.h"

namespace zpp {

/// {4, 8} as a topology.
Topology topology_of(const std::vector<int>& sizes);

struct LocalRanksOptions {
  LocalNetworkOptions network;
  LinkModel links;
  Runtime::Options runtime{.device = {}, .threads = 1};
  /// Random delays of the communication streams' tasks.
  int64_t stream_jitter_us = 0;
  Millis deadline{10000};
};

/// What the function of one rank sees.
struct LocalRank {
  int rank;
  const Topology& topology;
  LocalNetwork& network;
  Runtime& runtime;
  Ledger& ledger;
  FlightRecord& record;
  Transport& weights_transport;
  Transport& grads_transport;
  Mesh& mesh;
  Communicator& world;  // mesh.grads.world()
};

/// Runs `fn` once per rank, each in a thread. When one throws, both its planes are aborted, so the
/// others end too. The ledger is empty when `fn` begins.
/// Returns, by rank, the error that it ended with.
std::vector<std::optional<Error>> run_ranks_to_errors(const Topology& topology,
                                                      const LocalRanksOptions& options,
                                                      const std::function<void(LocalRank&)>& fn);

/// The same for ranks that should not fail: rethrows an error that is not only the echo of another
/// rank's (kPeerLost) where there is one, with the rank in its text.
void run_ranks(const Topology& topology, const LocalRanksOptions& options,
               const std::function<void(LocalRank&)>& fn);

}  // namespace zpp
