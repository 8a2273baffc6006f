// Collectives of CPU ranks: algorithms over a transport, on a stream of the caller.
#pragma once

#include <memory>
#include <string>

#include "comm/communicator.h"
#include "comm/flight_record.h"
#include "comm/ledger.h"
#include "comm/link_model.h"
#include "comm/topology.h"

namespace zpp {

struct HostCommunicatorOptions {
  std::string name = "world";
  Millis deadline{600000};  // of every wait for a peer
  /// Which algorithm for which size: from measured latencies and bandwidths.
  LinkModel links;
  Ledger* ledger = nullptr;        // optional; outlives the communicator
  FlightRecord* record = nullptr;  // optional; outlives the communicator
};

/// The world. Messages by which groups are made count in the ledger under "<its name>/split". Long
/// collectives keep up to 32 MiB of host memory per stream for what arrives, two-level all-to-alls
/// twice their buffer. A collective that fails aborts the transport, so that the peers end too.
/// `stream` and `transport` are used by this communicator and those split from it only,
/// and outlive them.
std::unique_ptr<Communicator> make_host_communicator(Stream& stream, Transport& transport,
                                                     const Topology& topology,
                                                     const HostCommunicatorOptions& options);

}  // namespace zpp
