// Ranks as threads of one process: what tests run on. Links can be shaped like slow networks.
#pragma once

#include <memory>
#include <vector>

#include "comm/topology.h"
#include "comm/transport.h"

namespace zpp {

/// One link class's speed as a token bucket. Zero: as fast as memory.
struct LinkShape {
  double bytes_per_s = 0;
  double latency_s = 0;
};

struct LocalNetworkOptions {
  /// By LinkClass (index 0 is unused); missing entries are unshaped. Shaped bandwidth is per sending
  /// rank for class 1 and per sending group of the level below for the others, like a node's card.
  std::vector<LinkShape> shapes;
  /// Tests: up to this many microseconds of random delay for each message.
  int64_t jitter_us = 0;
  uint64_t jitter_seed = 0;
};

/// What the ranks of one network share. Outlives its transports.
class LocalNetwork {
 public:
  explicit LocalNetwork(const Topology& topology, const LocalNetworkOptions& options = {});
  ~LocalNetwork();
  /// The transport number `plane` of `rank`: planes (one per communication stream) do not meet.
  std::unique_ptr<Transport> connect(int rank, int plane);
  /// Bytes that left each rank so far by LinkClass: what a network interface would have counted.
  std::vector<int64_t> sent_bytes(int rank) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace zpp
