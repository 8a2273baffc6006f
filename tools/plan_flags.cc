#include "tools/plan_flags.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace zpp {
namespace {

constexpr int64_t kMostNodes = 1 << 14, kMostRanksPerNode = 1 << 10, kMostRanks = 1 << 14;

struct Suffix {
  std::string_view text;
  double size;
};

/// A positive number and one of the suffixes, with nothing before, between or after.
double quantity(std::string_view option, const std::string& text,
                const std::vector<Suffix>& suffixes, std::string_view example) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error == std::errc() && std::isfinite(number) && number > 0) {
    const std::string_view unit(rest, static_cast<size_t>(end - rest));
    for (const Suffix& suffix : suffixes) {
      if (unit == suffix.text) return number * suffix.size;
    }
  }
  std::string known;
  for (const Suffix& suffix : suffixes) known += fmt::format(" {}", suffix.text);
  throw Error(Code::kInvalidArgument,
              fmt::format("{}: expected a positive number and a unit, one of{}, as in {}; found "
                          "\"{}\"",
                          option, known, example, text));
}

/// bps: bits, Bps: bytes per second; in powers of 1000.
double rate(std::string_view option, const std::string& text, std::string_view example) {
  static const std::vector<Suffix> kSuffixes = {{"Mbps", 1e6 / 8},  {"Gbps", 1e9 / 8},
                                                {"Tbps", 1e12 / 8}, {"MBps", 1e6},
                                                {"GBps", 1e9},      {"TBps", 1e12}};
  return quantity(option, text, kSuffixes, example);
}

}  // namespace

void declare_plan(CLI::App& app, PlanFlags& flags) {
  app.add_option("--world", flags.world, "plan for that many ranks; default: what launch says")
      ->check(CLI::Range(1, 1 << 20));
  const std::string group = "With --dry-run, for a cluster";
  app.add_option("--nodes", flags.nodes,
                 "nodes of a cluster: prints memory, traffic and time of every preset on it")
      ->check(CLI::Range(int64_t{1}, kMostNodes))
      ->group(group);
  app.add_option("--ranks-per-node", flags.ranks_per_node, "and ranks on each of them")
      ->check(CLI::Range(int64_t{1}, kMostRanksPerNode))
      ->group(group);
  app.add_option("--inter", flags.inter, "rate into a node from the others, as in 100Gbps (bits)")
      ->type_name("RATE")
      ->group(group);
  app.add_option("--intra", flags.intra, "rate into a rank from its node, as in 600GBps (bytes)")
      ->type_name("RATE")
      ->group(group);
  app.add_option("--flops", flags.flops, "FLOP/s that a rank attains, as in 125T")
      ->type_name("RATE")
      ->group(group);
  app.add_option("--memory", flags.memory,
                 "of a rank, as in 80GiB: marks presets that do not fit; default: no limit")
      ->type_name("BYTES")
      ->group(group);
}

Cluster parse_cluster(const PlanFlags& flags) {
  const auto need = [](bool given, std::string_view option) {
    if (given) return;
    throw Error(Code::kInvalidArgument,
                fmt::format("{} is missing: a cluster is --nodes, --ranks-per-node, --inter (for "
                            "more than one node), --intra (for more than one rank in a node) and "
                            "--flops",
                            option));
  };
  need(flags.nodes > 0, "--nodes");
  need(flags.ranks_per_node > 0, "--ranks-per-node");
  need(flags.nodes == 1 || !flags.inter.empty(), "--inter");
  need(flags.ranks_per_node == 1 || !flags.intra.empty(), "--intra");
  need(!flags.flops.empty(), "--flops");
  Cluster cluster{.nodes = flags.nodes, .ranks_per_node = flags.ranks_per_node, .memory = {}};
  if (cluster.world() > kMostRanks) {
    throw Error(Code::kInvalidArgument,
                fmt::format("--nodes: {} ranks in all, but at most {} are possible",
                            cluster.world(), kMostRanks));
  }
  if (!flags.inter.empty()) cluster.node_bytes_per_s = rate("--inter", flags.inter, "100Gbps");
  if (!flags.intra.empty()) cluster.rank_bytes_per_s = rate("--intra", flags.intra, "600GBps");
  cluster.flops = quantity("--flops", flags.flops, {{"G", 1e9}, {"T", 1e12}, {"P", 1e15}}, "125T");
  if (!flags.memory.empty()) {
    const double bytes = quantity(
        "--memory", flags.memory,
        {{"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}},
        "80GiB");
    // More than a number of bytes can say is no limit.
    if (bytes < 0x1p62) cluster.memory = static_cast<int64_t>(bytes);
  }
  return cluster;
}

void print_planned(const TrainArguments& arguments, const PlanFlags& flags, std::ostream& out) {
  if (!flags.any_of_cluster()) return print_plan(arguments, flags.world, out);
  if (flags.world != 0) {
    throw Error(Code::kInvalidArgument,
                "--world goes without the options of a cluster, which tell the number of ranks");
  }
  print_advice(arguments, parse_cluster(flags), out);
}

}  // namespace zpp
