#include "parallel/zero_config.h"

#include <fmt/format.h>

#include <array>
#include <map>

#include "core/error.h"

namespace zpp {
namespace {

/// Names of params, grads and optimizer of each preset.
const std::array<std::string, 3>* names_of(const std::string& preset) {
  static const std::map<std::string, std::array<std::string, 3>> kPresets = {
      {"ddp", {"self", "self", "self"}},      {"zero1", {"self", "self", "world"}},
      {"zero2", {"self", "world", "world"}},  {"zero3", {"world", "world", "world"}},
      {"hsdp", {"node", "node", "node"}},     {"hybrid", {"node", "node", "world"}},
      {"zero++", {"world", "world", "world"}}};
  const auto at = kPresets.find(preset);
  return at == kPresets.end() ? nullptr : &at->second;
}

/// "self", "node", "world" or the "levelN" of a deeper topology.
bool is_level_name(const std::string& name) {
  if (name == "self" || name == "node" || name == "world") return true;
  constexpr std::string_view kDeeper = "level";
  return name.size() > kDeeper.size() && name.starts_with(kDeeper) &&
         name.find_first_not_of("0123456789", kDeeper.size()) == std::string::npos;
}

constexpr int64_t kSmallestBlock = 32, kLargestBlock = 16384;

int level_of(const std::string& name, const Topology& topology) {
  if (name == "world") return topology.levels();
  // Ranks of a single node: its group is the world's.
  if (name == "node" && topology.levels() == 1) return 1;
  return topology.level_of(name);
}

}  // namespace

void ShardSection::fields(Fields& f) {
  f("params", params,
    "ranks over which parameters are spread: self, node, world; default: preset's")(
      "grads", grads, "ranks over which gradients are spread, at least those of params")(
      "optimizer", optimizer,
      "ranks over which optimizer state is spread, at least those of grads");
}

void WeightWireSection::fields(Fields& f) {
  f("wire", wire, "between nodes: as they are (16bit) or coded; default: preset's",
    {"", "16bit", "int8", "int4"})("block", block, "values that share a scale, a multiple of 32",
                                   kSmallestBlock, kLargestBlock);
}

void GradWireSection::fields(Fields& f) {
  f("wire_intra", wire_intra, "inside a node; default: preset's", {"", "16bit", "int8", "int4"})(
      "wire_inter", wire_inter, "between nodes; default: preset's", {"", "16bit", "int8", "int4"})(
      "block_intra", block_intra, "values that share a scale inside a node, a multiple of 32",
      kSmallestBlock, kLargestBlock)("block_inter", block_inter, "and between nodes",
                                     kSmallestBlock, kLargestBlock)(
      "hadamard", hadamard, "transform each 32 values first, which spreads outliers")(
      "rounding", rounding, "of codes", {"nearest", "stochastic"})(
      "chunks", chunks, "pieces of a reduction that follow each other through its levels", 1, 64);
}

void ZeroConfig::fields(Fields& f) {
  f("preset", preset, "what is spread over the ranks; custom: as zero.shard says",
    {"ddp", "zero1", "zero2", "zero3", "hsdp", "hybrid", "zero++", "custom"})
      .section("shard", shard, "the groups of ranks that hold one copy together")(
          "prefetch_units", prefetch_units,
          "units whose weights are gathered ahead of their use; 1 more is held at a time", 0, 64)(
          "overlap", overlap, "communicate while computing; false: one after the other, for tests")
      .section("weights", weights, "how weights travel between nodes")
      .section("grads", grads, "how gradients travel")(
          "replica", replica,
          "node: what is gathered between nodes once is kept inside each node until weights "
          "change; default: preset's",
          {"", "none", "node"})("replica_storage", replica_storage,
                                "as weights (16bit) or as the received codes (wire)",
                                {"16bit", "wire"});
}

void ZeroConfig::resolve(Problems& problems) {
  const std::array<std::string, 3>* preset_names = names_of(preset);
  const std::array<std::pair<const char*, std::string*>, 3> given = {
      {{"params", &shard.params}, {"grads", &shard.grads}, {"optimizer", &shard.optimizer}}};
  for (size_t i = 0; i < given.size(); ++i) {
    const std::string key = fmt::format("zero.shard.{}", given[i].first);
    std::string& name = *given[i].second;
    if (preset_names != nullptr) {
      const std::string& meant = preset_names->at(i);
      if (!name.empty() && name != meant) {
        problems.add(key, fmt::format("\"{}\" contradicts preset {}, which means \"{}\"; set "
                                      "zero.preset to custom for a choice of your own",
                                      name, preset, meant));
      }
      name = meant;
    } else if (name.empty()) {
      problems.add(key, "missing, and zero.preset custom needs it");
    } else if (!is_level_name(name)) {
      problems.add(key,
                   fmt::format("expected self, node, world or the levelN of a deeper topology, "
                               "found \"{}\"",
                               name));
    }
  }
  const bool all = preset == "zero++";
  const auto fill_in = [](std::string& name, const char* meant) {
    if (name.empty()) name = meant;
  };
  fill_in(weights.wire, all ? "int8" : "16bit");
  fill_in(grads.wire_intra, all ? "int8" : "16bit");
  fill_in(grads.wire_inter, all ? "int4" : "16bit");
  fill_in(replica, all ? "node" : "none");
  const std::array<std::pair<const char*, int64_t>, 3> blocks = {
      {{"zero.weights.block", weights.block},
       {"zero.grads.block_intra", grads.block_intra},
       {"zero.grads.block_inter", grads.block_inter}}};
  for (const auto& [key, block] : blocks) {
    if (block % kSmallestBlock != 0) {
      problems.add(key, fmt::format("expected a multiple of {}, found {}", kSmallestBlock, block));
    }
  }
}

ZeroConfig resolved(ZeroConfig config) {
  Problems problems;
  config.resolve(problems);
  problems.throw_if_any("zero");
  return config;
}

ShardLevels shard_levels(const ZeroConfig& config, const Topology& topology) {
  const ZeroConfig zero = resolved(config);
  const ShardLevels levels{level_of(zero.shard.params, topology),
                           level_of(zero.shard.grads, topology),
                           level_of(zero.shard.optimizer, topology)};
  if (levels.params > levels.grads || levels.grads > levels.optimizer) {
    throw Error(Code::kInvalidArgument,
                fmt::format("zero.shard: parameters on {}, gradients on {}, optimizer on {}: each "
                            "must be spread at least as far as the one before",
                            zero.shard.params, zero.shard.grads, zero.shard.optimizer));
  }
  return levels;
}

}  // namespace zpp
