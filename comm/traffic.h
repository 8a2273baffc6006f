// What an algorithm sends, without running it.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/link_model.h"
#include "comm/topology.h"
#include "comm/transport.h"

namespace zpp {

/// A collective of `bytes` in its whole buffer: `out` of an all-gather, else `in` or `inout`.
struct Collective {
  Operation operation = Operation::kAllGather;
  int64_t bytes = 0;
  int64_t element_bytes = 1;  // all-reduce cuts its buffer between elements
  int root = 0;               // broadcast, in the group
};

/// Whether `algorithm` exists for the operation and differs from kDirect for such a group.
bool applies(Algorithm algorithm, Operation operation, const Topology& topology,
             const std::vector<int>& members);

/// Payload that member number `me` sends, by LinkClass: what the ledger will say, to the byte.
/// `algorithm` must apply; barriers are free.
std::vector<int64_t> predicted_bytes(const Topology& topology, const std::vector<int>& members,
                                     int me, const Collective& collective, Algorithm algorithm);

}  // namespace zpp
