// The `zero` section: on which groups of ranks parameters, gradients and optimizer state live.
#pragma once

#include <cstdint>
#include <string>

#include "comm/topology.h"
#include "core/config.h"

namespace zpp {

/// Levels of a topology (0: every rank holds all, levels(): spread over the world), each at least
/// the one before.
struct ShardLevels {
  int params = 0;
  int grads = 0;
  int optimizer = 0;
  bool operator==(const ShardLevels&) const = default;
};

/// The section's `shard` part. After resolve() no name here or below is empty.
struct ShardSection {
  std::string params, grads, optimizer;

  void fields(Fields& f);
};

/// The section's `weights` part: how weights travel between nodes.
struct WeightWireSection {
  std::string wire;  // empty: preset's
  int64_t block = 2048;

  void fields(Fields& f);
};

/// The section's `grads` part: how gradients travel.
struct GradWireSection {
  std::string wire_intra, wire_inter;  // empty: preset's
  int64_t block_intra = 512;
  int64_t block_inter = 128;
  bool hadamard = false;
  std::string rounding = "nearest";
  int64_t chunks = 4;

  void fields(Fields& f);
};

/// The `zero` section. Presets are points of the three choices:
///   ddp     (self, self, self)      zero1  (self, self, world)     zero2  (self, world, world)
///   zero3   (world, world, world)   hsdp   (node, node, node)      hybrid (node, node, world)
/// and zero++ is zero3 with weights and gradients coded and a replica of the weights in each node.
struct ZeroConfig {
  std::string preset = "zero3";
  ShardSection shard;
  WeightWireSection weights;
  GradWireSection grads;
  std::string replica;  // empty: preset's
  std::string replica_storage = "16bit";
  int64_t prefetch_units = 1;
  bool overlap = true;

  void fields(Fields& f);
  /// Fills in the names that the preset means; adds to `problems` what contradicts it.
  void resolve(Problems& problems);
};

/// The section with everything filled in that its preset means.
/// Errors: kInvalidArgument with all that contradicts it
ZeroConfig resolved(ZeroConfig config);

/// The levels that a section means on `topology`; "node" of ranks that are all in one node is the
/// world.
/// Errors: kInvalidArgument for a level that the topology does not have, or groups that do not nest
ShardLevels shard_levels(const ZeroConfig& config, const Topology& topology);

}  // namespace zpp
