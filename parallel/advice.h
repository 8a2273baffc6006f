// Which preset for which cluster: memory, bytes and time of a training step, by arithmetic.
//
// Bytes. Level by level (Algorithm::kTwoLevel), a gather or a reduction of a whole buffer of W bytes
// makes all ranks together send W (world / s_(c-1) - world / s_c) bytes over links of class c, s_l
// being the ranks of a group of level l; parallel/shard_layout.h says how often each is done. W is
// the padded buffer in the compute dtype, or its packet (comm/packet.h) where the wires code it. With
// a replica only the first gather of a step goes to the owners, all others stay inside the node. Frozen
// units have no gradients, and a replica of them stays valid.
//
// Time. A rank computes for c = model FLOPs / (FLOP/s * ranks) of a micro-batch; recomputation is the
// rate's affair. Links of the two classes work at the same time, as chunks of one collective follow
// each other through its levels, so that bytes take as long as the slower class needs. A step is its
// K micro-batches, one of them with everything that goes once a step:
//
//   (K - 1) max(c, links of another micro-batch) + max(c + edge, links of the first one)
//
// where `edge` is what nothing can hide: weights of the root and the first block on their way before
// there is anything to compute, their gradients after all has been computed. Latency, evaluation and
// the update itself are left out.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/topology.h"
#include "parallel/shard_layout.h"
#include "parallel/train_config.h"
#include "parallel/zero_wires.h"

namespace zpp {

/// A unit as its wires see it.
struct UnitWire {
  int64_t flat = 0;                          // elements, padded
  std::shared_ptr<const Segments> segments;  // what goes into packets
  bool kept = false;                         // between forward and backward
  bool frozen = false;                       // never updated
};

/// Bytes that all ranks together send, by link class (index 0 is unused).
struct StepBytes {
  std::vector<int64_t> weights, grads;
  int64_t of(LinkClass c) const {
    return weights[static_cast<size_t>(c)] + grads[static_cast<size_t>(c)];
  }
};

/// Of a training step with `micro_batches`, exactly.
StepBytes step_bytes(const Topology& topology, const ShardLevels& levels, const ZeroWires& wires,
                     DType compute, const std::vector<UnitWire>& units, int64_t micro_batches);

/// What a preset would run on.
struct Cluster {
  int64_t nodes = 1;
  int64_t ranks_per_node = 1;
  double node_bytes_per_s = 0;    // into a node from others, all its ranks together; unused for one
  double rank_bytes_per_s = 0;    // into a rank from its node; unused for one
  double flops = 0;               // FLOP/s of the model that a rank attains
  std::optional<int64_t> memory;  // bytes of a rank; absent: whatever it takes

  int64_t world() const { return nodes * ranks_per_node; }
};

enum class Bound : uint8_t { kCompute, kBetweenNodes, kInsideNodes };

struct AdviceRow {
  std::string name;
  // Bytes of one rank, as a Plan counts them; they add up to `memory`.
  int64_t weights = 0, replica = 0, gradients = 0, optimizer = 0, passing = 0, working = 0;
  int64_t memory = 0;
  bool fits = true;
  // Bytes of one step, the mean over nodes and ranks.
  int64_t into_node = 0;  // from other nodes
  int64_t into_rank = 0;  // from its node
  double links_s = 0;     // that links take in a step
  double edge_s = 0;      // of it, what nothing can hide
  double step_s = 0;
  double tokens_per_s = 0;
  Bound bound = Bound::kCompute;  // what takes longest
};

struct Advice {
  Cluster cluster;
  int64_t parameters = 0;
  int64_t micro_batches = 1;  // K
  int64_t micro_batch = 1;    // sequences
  int64_t tokens_per_step = 0;
  double compute_s = 0;  // of a step
  std::vector<AdviceRow> rows;
  std::vector<std::string> left_out;  // a sentence for each preset that this model cannot have

  /// The fastest row that fits; of those within a hundredth of it the one that needs least memory.
  /// Null if none fits.
  const AdviceRow* best() const;
  const AdviceRow* find(const std::string& name) const;
};

/// A row for each preset, for hybrid with codes at its boundary, and for the configuration's own
/// `zero` section if it is none of these. Starts no ranks.
/// Errors: kInvalidArgument if the configuration does not fit that many ranks
Advice make_advice(const TrainConfig& config, const Cluster& cluster);

/// The table. Its last line is a sentence: which preset to take, and why.
std::string advice_text(const TrainConfig& config, const Advice& advice);

}  // namespace zpp
