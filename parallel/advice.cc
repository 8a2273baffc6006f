#include "parallel/advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/error.h"
#include "parallel/plan.h"
#include "parallel/session.h"

namespace zpp {
namespace {

/// Bytes of one unit's traffic.
class UnitBytes {
 public:
  UnitBytes(const Topology& topology, const ShardLevels& levels, const ZeroWires& wires,
            DType compute, const UnitWire& unit)
      : topology_(topology),
        levels_(levels),
        wires_(wires),
        compute_(compute),
        unit_(unit),
        plain_(unit.flat * size_of(compute)) {}

  int64_t weights(LinkClass c, int64_t micro_batches) const {
    const auto [inner, outer] = hop(c);
    const bool published = c > levels_.params;
    if (outer == 0 || (published && unit_.frozen)) return 0;
    const bool coded = wires_.codes_weights(inner, outer);
    const int64_t whole = coded ? packed(wires_.weights) : plain_;
    if (published) return whole * times_sent(c);
    const int64_t gathers = (unit_.kept ? 1 : 2) * micro_batches;
    if (!wires_.replica) return gathers * whole * times_sent(c);
    const int64_t owners = unit_.frozen ? 0 : 1;
    const int64_t again = wires_.replica_coded ? packed(wires_.weights) : plain_;
    return (owners * whole + (c <= 1 ? (gathers - owners) * again : 0)) * times_sent(c);
  }

  int64_t grads(LinkClass c, int64_t micro_batches) const {
    if (unit_.frozen) return 0;
    const auto [inner, outer] = hop(c);
    if (outer == 0) return 2 * plain_ * times_sent(c);  // all-reduce
    const bool coded = wires_.codes_grads(topology_, inner, outer);
    const int64_t whole = coded ? packed(c <= 1 ? wires_.grads_intra : wires_.grads_inter) : plain_;
    return (c <= levels_.grads ? micro_batches : 1) * whole * times_sent(c);
  }

 private:
  /// The levels that the collective over links of class c is between; (0, 0) beyond the optimizer's.
  std::pair<int, int> hop(LinkClass c) const {
    int inner = 0;
    for (const int outer : {levels_.params, levels_.grads, levels_.optimizer}) {
      if (c <= outer) return {inner, outer};
      inner = outer;
    }
    return {0, 0};
  }
  /// How often all ranks together send the whole over links of class c.
  int64_t times_sent(LinkClass c) const {
    return topology_.world() / topology_.group_size(c - 1) -
           topology_.world() / topology_.group_size(c);
  }
  /// However it is cut: see Packet.
  int64_t packed(const WireFormat& format) const {
    return Packet(*unit_.segments, 0, unit_.flat, format, compute_).bytes();
  }

  const Topology& topology_;
  const ShardLevels& levels_;
  const ZeroWires& wires_;
  const DType compute_;
  const UnitWire& unit_;
  const int64_t plain_;
};

Topology cluster_topology(const Cluster& cluster) {
  std::vector<int> nested = {static_cast<int>(cluster.ranks_per_node)};
  if (cluster.nodes > 1) nested.push_back(static_cast<int>(cluster.world()));
  return Topology::nested(nested);
}

struct Candidate {
  std::string name;
  ZeroConfig zero;
};

/// Everything else in the section stays as it is configured.
ZeroConfig with_preset(ZeroConfig zero, const std::string& preset, const std::string& weights,
                       const std::string& grads_inter) {
  zero.preset = preset;
  zero.shard = {};
  zero.weights.wire = weights;
  zero.grads.wire_intra.clear();
  zero.grads.wire_inter = grads_inter;
  zero.replica.clear();
  zero.replica_storage = "16bit";
  return resolved(std::move(zero));
}

bool same_traffic(const ZeroConfig& a, const ZeroConfig& b) {
  const auto facts = [](const ZeroConfig& zero) {
    return std::array{zero.shard.params, zero.shard.grads,      zero.shard.optimizer,
                      zero.weights.wire, zero.grads.wire_intra, zero.grads.wire_inter,
                      zero.replica,      zero.replica_storage};
  };
  return facts(a) == facts(b);
}

std::vector<Candidate> candidates(const TrainConfig& config, const Cluster& cluster) {
  std::vector<Candidate> all;
  const auto add = [&](const std::string& name, const std::string& preset,
                       const std::string& weights = "", const std::string& grads = "") {
    all.push_back({name, with_preset(config.zero, preset, weights, grads)});
  };
  for (const char* preset : {"ddp", "zero1", "zero2", "zero3", "hsdp", "hybrid", "zero++"}) {
    add(preset, preset);
  }
  if (cluster.nodes > 1) add("hybrid, int8/int4", "hybrid", "int8", "int4");
  const ZeroConfig own = resolved(config.zero);
  const bool listed = std::any_of(all.begin(), all.end(), [&](const Candidate& candidate) {
    return same_traffic(candidate.zero, own);
  });
  if (!listed) all.push_back({"as configured", own});
  return all;
}

/// What a step of each preset is computed from.
class Adviser {
 public:
  Adviser(const TrainConfig& config, const Cluster& cluster)
      : config_(config),
        cluster_(cluster),
        topology_(cluster_topology(cluster)),
        table_(config.compute()),
        model_(make_frozen_model(table_, model_maker(config), config.train.frozen)) {}

  Advice advise() {
    Advice advice{.cluster = cluster_,
                  .parameters = table_.numel(),
                  .micro_batches = config_.micro_batches(cluster_.world()),
                  .micro_batch = config_.micro_batch(cluster_.world()),
                  .tokens_per_step = config_.tokens_per_step(),
                  .rows = {},
                  .left_out = {}};
    advice.compute_s = model_->flops_per_token() * static_cast<double>(advice.tokens_per_step) /
                       (cluster_.flops * static_cast<double>(cluster_.world()));
    for (const Candidate& candidate : candidates(config_, cluster_)) {
      AdviceRow row{.name = candidate.name};
      try {
        const ShardLevels levels = shard_levels(candidate.zero, topology_);
        add_bytes_and_time(advice, levels,
                           zero_wires(candidate.zero, topology_, levels, config_.compute()), row);
      } catch (const Error& error) {
        if (error.code() != Code::kInvalidArgument) throw;
        advice.left_out.push_back(fmt::format("{}: {}", candidate.name, error.what()));
        continue;
      }
      add_memory(candidate.zero, row);
      advice.rows.push_back(std::move(row));
    }
    return advice;
  }

 private:
  /// Bytes into a node and into a rank, which are means where packets differ.
  struct Traffic {
    int64_t node = 0, rank = 0;
  };

  std::vector<UnitWire> units(const ZeroWires& wires) {
    std::vector<UnitWire> units;
    for (const auto& unit : table_.units()) {
      unit->layout(ShardLayout::kAlignment, wires.grid * cluster_.world(), wires.grid);
      units.push_back({unit->flat_numel(), segments_of(*unit), false, unit->frozen()});
    }
    units.front().kept = units.back().kept = true;
    return units;
  }

  Traffic traffic(const ShardLevels& levels, const ZeroWires& wires,
                  const std::vector<UnitWire>& units, int64_t micro_batches) const {
    const StepBytes sent =
        step_bytes(topology_, levels, wires, config_.compute(), units, micro_batches);
    return {cluster_.nodes > 1 ? sent.of(2) / cluster_.nodes : 0, sent.of(1) / cluster_.world()};
  }

  double between_s(const Traffic& bytes) const {
    return bytes.node == 0 ? 0.0 : static_cast<double>(bytes.node) / cluster_.node_bytes_per_s;
  }
  double inside_s(const Traffic& bytes) const {
    return bytes.rank == 0 ? 0.0 : static_cast<double>(bytes.rank) / cluster_.rank_bytes_per_s;
  }
  double links_s(const Traffic& bytes) const { return std::max(between_s(bytes), inside_s(bytes)); }

  void add_bytes_and_time(const Advice& advice, const ShardLevels& levels, const ZeroWires& wires,
                          AdviceRow& row) {
    std::vector<UnitWire> all = units(wires);
    const Traffic first = traffic(levels, wires, all, 1), two = traffic(levels, wires, all, 2);
    const Traffic other{two.node - first.node, two.rank - first.rank};
    const int64_t others = advice.micro_batches - 1;
    row.into_node = first.node + others * other.node;
    row.into_rank = first.rank + others * other.rank;
    all.resize(std::min<size_t>(all.size(), 2));
    for (UnitWire& unit : all) unit.kept = true;  // gathered once before, reduced once after
    row.edge_s = links_s(traffic(levels, wires, all, 1));

    const double compute = advice.compute_s / static_cast<double>(advice.micro_batches);
    const double repeats = static_cast<double>(others);
    row.links_s = repeats * links_s(other) + links_s(first);
    row.step_s = repeats * std::max(compute, links_s(other)) +
                 std::max(compute + row.edge_s, links_s(first));
    row.tokens_per_s = static_cast<double>(advice.tokens_per_step) / row.step_s;
    const Traffic step{row.into_node, row.into_rank};
    if (row.links_s > advice.compute_s) {
      row.bound = between_s(step) >= inside_s(step) ? Bound::kBetweenNodes : Bound::kInsideNodes;
    }
  }

  void add_memory(const ZeroConfig& zero, AdviceRow& row) const {
    TrainConfig config = config_;
    config.zero = zero;
    config.launch.hosts.clear();
    config.launch.levels.clear();
    config.launch.nodes = cluster_.nodes;
    config.launch.ranks_per_node = cluster_.ranks_per_node;
    const Plan plan = make_plan(config, {}, cluster_.world());
    row.weights = plan.weights;
    row.replica = plan.replica;
    row.gradients = plan.gradients;
    row.optimizer = plan.master + plan.moments;
    row.passing = plan.passing;
    row.working = plan.working;
    row.memory = plan.pool;
    row.fits = !cluster_.memory || row.memory <= *cluster_.memory;
  }

  const TrainConfig& config_;
  const Cluster& cluster_;
  const Topology topology_;
  ParameterTable table_;
  const std::unique_ptr<Model> model_;
};

}  // namespace

StepBytes step_bytes(const Topology& topology, const ShardLevels& levels, const ZeroWires& wires,
                     DType compute, const std::vector<UnitWire>& units, int64_t micro_batches) {
  const size_t classes = static_cast<size_t>(topology.levels()) + 1;
  StepBytes bytes{std::vector<int64_t>(classes), std::vector<int64_t>(classes)};
  for (const UnitWire& unit : units) {
    const UnitBytes counted(topology, levels, wires, compute, unit);
    for (LinkClass c = 1; c <= topology.levels(); ++c) {
      if (topology.group_size(c) == topology.group_size(c - 1)) continue;
      bytes.weights[static_cast<size_t>(c)] += counted.weights(c, micro_batches);
      bytes.grads[static_cast<size_t>(c)] += counted.grads(c, micro_batches);
    }
  }
  return bytes;
}

const AdviceRow* Advice::best() const {
  constexpr double kAlike = 1.01;
  const AdviceRow* fastest = nullptr;
  for (const AdviceRow& row : rows) {
    if (row.fits && (fastest == nullptr || row.step_s < fastest->step_s)) fastest = &row;
  }
  const AdviceRow* best = fastest;
  for (const AdviceRow& row : rows) {
    if (row.fits && row.step_s <= kAlike * fastest->step_s && row.memory < best->memory) {
      best = &row;
    }
  }
  return best;
}

const AdviceRow* Advice::find(const std::string& name) const {
  const auto at = std::find_if(rows.begin(), rows.end(),
                               [&](const AdviceRow& row) { return row.name == name; });
  return at == rows.end() ? nullptr : &*at;
}

Advice make_advice(const TrainConfig& config, const Cluster& cluster) {
  check_world(config, cluster.world());
  return Adviser(config, cluster).advise();
}

}  // namespace zpp
