// In what form weights and gradients travel between ranks: what a `zero` section means on a topology.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/packet.h"
#include "model/nn/parameter.h"
#include "parallel/zero_config.h"

namespace zpp {

struct ZeroWires {
  WireFormat weights;  // of gathers between nodes
  bool replica = false;
  bool replica_coded = false;  // the replica is what was received, not what it means
  WireFormat grads_intra, grads_inter;
  bool hadamard = false;
  bool stochastic = false;
  int64_t chunks = 1;
  /// What matrices and shards start on a multiple of: of every block length in use.
  int64_t grid = 64;
  /// Whether a gather of weights, or a reduction of gradients, over the ranks between two levels of
  /// `topology` is coded.
  bool codes_weights(int inner, int outer) const;
  bool codes_grads(const Topology& topology, int inner, int outer) const;
  /// Of everything above: ranks that communicate must have the same.
  uint64_t hash() const;
  /// Settings that change nothing here, a sentence each.
  std::vector<std::string> notes;
};

/// Errors: kInvalidArgument, one sentence, for settings that cannot work together on `topology`
ZeroWires zero_wires(const ZeroConfig& config, const Topology& topology, const ShardLevels& levels,
                     DType compute);

/// What travels of a unit that is laid out: its matrices (rank 2 and more) coded, the rest as it is.
std::shared_ptr<const Segments> segments_of(const ParameterUnit& unit);

}  // namespace zpp
