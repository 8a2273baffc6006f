#include "parallel/zero_wires.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "core/rng.h"
#include "parallel/shard_layout.h"

namespace zpp {
namespace {

// Padding beyond this would no longer be small beside a unit.
constexpr int64_t kLargestGrid = 1 << 16;

WireFormat format_of(const std::string& wire, int64_t block) {
  if (wire == "int8") return {8, block};
  if (wire == "int4") return {4, block};
  return {};
}

[[noreturn]] void refuse(const std::string& why) {
  throw Error(Code::kInvalidArgument, fmt::format("zero: {}", why));
}

/// What a section asks of a topology, step by step.
class Wires {
 public:
  Wires(ZeroConfig config, const Topology& topology, const ShardLevels& levels)
      : config_(std::move(config)),
        levels_(levels),
        nodes_(topology.group_size(1) < topology.world()),
        node_ranks_(topology.group_size(1)),
        all_levels_(topology.levels()) {}

  ZeroWires resolve(DType compute) {
    weights();
    replica();
    grads();
    out_.hadamard = config_.grads.hadamard;
    out_.stochastic = config_.grads.rounding == "stochastic";
    out_.chunks = config_.grads.chunks;
    grid();
    const bool coded = out_.weights.coded() || out_.grads_intra.coded() || out_.grads_inter.coded();
    if (coded && compute == DType::kF64) {
      refuse(
          "precision.compute f64 is for exact comparisons and is not coded; set the wires to "
          "16bit");
    }
    return std::move(out_);
  }

 private:
  void note(const std::string& text) { out_.notes.push_back(text); }

  void weights() {
    out_.weights = format_of(config_.weights.wire, config_.weights.block);
    if (!out_.weights.coded()) return;
    if (!nodes_) {
      out_.weights = {};
      return note(
          fmt::format("zero.weights.wire {} changes nothing on one node: only gathers between "
                      "nodes are coded",
                      config_.weights.wire));
    }
    if (levels_.params <= 1 && levels_.optimizer <= 1) {
      refuse(fmt::format(
          "weights.wire {} has nothing to code: parameters and optimizer state stay inside the "
          "node; spread one of them over the world (preset zero3 or hybrid)",
          config_.weights.wire));
    }
  }

  void replica() {
    if (config_.replica == "none") {
      if (config_.replica_storage == "wire") refuse("replica_storage wire needs replica node");
      return;
    }
    if (!nodes_) {
      return note("zero.replica node changes nothing on one node: every gather stays inside it");
    }
    if (levels_.params <= 1) {
      refuse(
          "replica node keeps what is gathered between nodes, but parameters are not spread beyond "
          "the node; use it with preset zero3 or zero++");
    }
    if (node_ranks_ == 1) {
      note("zero.replica node keeps all weights on every rank, since a node has only one");
    }
    out_.replica = true;
    out_.replica_coded = config_.replica_storage == "wire";
    if (out_.replica_coded && !out_.weights.coded()) {
      refuse("replica_storage wire keeps codes, which weights.wire 16bit does not have");
    }
  }

  void grads() {
    const GradWireSection& grads = config_.grads;
    if (grads.wire_intra == "16bit" && grads.wire_inter == "16bit" &&
        (grads.hadamard || grads.rounding != "nearest")) {
      note("zero.grads.hadamard and zero.grads.rounding change nothing without a coded wire");
    }
    out_.grads_intra = format_of(config_.grads.wire_intra, config_.grads.block_intra);
    out_.grads_inter = format_of(config_.grads.wire_inter, config_.grads.block_inter);
    if (out_.grads_inter.coded() && !nodes_) {
      out_.grads_inter = {};
      note(fmt::format("zero.grads.wire_inter {} changes nothing on one node",
                       config_.grads.wire_inter));
    }
    if (out_.grads_intra.coded() && node_ranks_ == 1) {
      out_.grads_intra = {};
      note(fmt::format("zero.grads.wire_intra {} changes nothing with one rank in a node",
                       config_.grads.wire_intra));
    }
    if (out_.grads_inter.coded() && levels_.optimizer > 1 && levels_.optimizer < all_levels_) {
      note(
          fmt::format("zero.grads.wire_inter {} does not reach the sums between copies of the "
                      "optimizer's state, which go as they are",
                      config_.grads.wire_inter));
    }
    if (out_.grads_intra.coded() && levels_.optimizer == 0) {
      refuse(fmt::format(
          "grads.wire_intra {} codes reduce-scatters, but this preset has none: every rank needs "
          "the whole sum; spread the optimizer (preset zero1, zero2, zero3)",
          config_.grads.wire_intra));
    }
    if (out_.grads_inter.coded() && levels_.optimizer <= 1) {
      refuse(fmt::format(
          "grads.wire_inter {} codes reduce-scatters between nodes, but the optimizer is spread "
          "over the node at most, so that every node needs the whole sum; use preset hybrid",
          config_.grads.wire_inter));
    }
  }

  void grid() {
    out_.grid = ShardLayout::kAlignment;
    for (const WireFormat& format : {out_.weights, out_.grads_intra, out_.grads_inter}) {
      if (format.coded()) out_.grid = std::lcm(out_.grid, format.block);
    }
    if (out_.grid > kLargestGrid) {
      refuse(fmt::format(
          "matrices must start on a multiple of all block lengths at once, {} elements here, at "
          "most {}; use powers of two",
          out_.grid, kLargestGrid));
    }
  }

  const ZeroConfig config_;
  const ShardLevels levels_;
  const bool nodes_;
  const int node_ranks_, all_levels_;
  ZeroWires out_;
};

}  // namespace

ZeroWires zero_wires(const ZeroConfig& config, const Topology& topology, const ShardLevels& levels,
                     DType compute) {
  return Wires(resolved(config), topology, levels).resolve(compute);
}

uint64_t ZeroWires::hash() const {
  uint64_t hash = 0;
  for (const WireFormat& format : {weights, grads_intra, grads_inter}) {
    hash = mix_hash(hash, static_cast<uint64_t>(format.bits));
    hash = mix_hash(hash, static_cast<uint64_t>(format.block));
  }
  for (const int64_t value : {int64_t{replica}, int64_t{replica_coded}, int64_t{hadamard},
                              int64_t{stochastic}, chunks, grid}) {
    hash = mix_hash(hash, static_cast<uint64_t>(value));
  }
  return hash;
}

bool ZeroWires::codes_weights(int inner, int outer) const {
  return weights.coded() && outer > std::max(inner, 1);
}

bool ZeroWires::codes_grads(const Topology& topology, int inner, int outer) const {
  return (inner < 1 && topology.group_size(1) > 1 && grads_intra.coded()) ||
         (outer > std::max(inner, 1) && grads_inter.coded());
}

std::shared_ptr<const Segments> segments_of(const ParameterUnit& unit) {
  auto segments = std::make_shared<Segments>();
  for (const auto& p : unit.parameters()) {
    if (p->numel() == 0) continue;
    segments->push_back({p->offset(), p->numel(), p->shape().rank() >= 2});
  }
  return segments;
}

}  // namespace zpp
