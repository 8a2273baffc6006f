// The communicators that a training run shards over: one per level of nested groups, on separate
// streams for weights and for gradients.
#pragma once

#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "comm/ledger.h"
#include "comm/topology.h"

namespace zpp {

/// Groups of one stream, with the ranks of the world that they are made of.
class MeshPlane {
 public:
  /// Takes the world's communicator and splits it. All ranks call it; blocks.
  MeshPlane(std::unique_ptr<Communicator> world, const Topology& topology);

  /// The ranks around this one at a level of the topology; 0: itself, a communicator of one rank.
  Communicator& group(int level);
  /// The ranks of group(outer) that have this one's place in their groups of level `inner`: a sum
  /// over group(inner) and then across(inner, outer) is the sum over group(outer). inner < outer.
  Communicator& across(int inner, int outer);
  Communicator& world() { return *world_; }
  Stream& stream() { return world_->stream(); }

 private:
  std::unique_ptr<Communicator> world_;
  const Topology topology_;
  std::vector<std::unique_ptr<Communicator>> group_;                // by level below the world
  std::vector<std::vector<std::unique_ptr<Communicator>>> across_;  // by inner, then outer
};

struct Mesh {
  Topology topology;
  MeshPlane& weights;        // gathers
  MeshPlane& grads;          // reductions, and everything rare: norms, losses
  Ledger* ledger = nullptr;  // optional: what the communicators above count in
};

}  // namespace zpp
