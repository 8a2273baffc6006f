// The table of an advice.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/human.h"
#include "parallel/advice.h"

namespace zpp {
namespace {

/// Three digits or more, without an exponent.
std::string digits(double value) {
  if (value >= 999.5) return with_commas(std::llround(value));
  return fmt::format("{:.{}f}", value, value < 0.9995 ? 3 : value < 99.995 ? 2 : 1);
}

/// "8.18 s", "7.55 ms".
std::string time_of(double seconds) {
  return seconds < 1 ? digits(seconds * 1e3) + " ms" : digits(seconds) + " s";
}

/// What all numbers of a kind are given in, so that columns can be compared.
struct Unit {
  double size;
  const char* name;

  std::string of(double value) const { return value == 0 ? "-" : digits(value / size); }
  std::string of(int64_t value) const { return of(static_cast<double>(value)); }
};

/// The largest of `units` that leaves something before the point of `largest`.
template <size_t N>
Unit unit_for(double largest, const std::array<Unit, N>& units) {
  for (const Unit& unit : units) {
    if (largest >= unit.size) return unit;
  }
  return units.back();
}

struct Units {
  Unit memory, traffic, time;
};

Units units_of(const Advice& advice) {
  int64_t memory = 0, bytes = 0;
  double seconds = 0;
  for (const AdviceRow& row : advice.rows) {
    memory = std::max(memory, row.memory);
    bytes = std::max({bytes, row.into_node, row.into_rank});
    seconds = std::max(seconds, row.step_s);
  }
  constexpr std::array<Unit, 3> kMemory = {{{0x1p30, "GiB"}, {0x1p20, "MiB"}, {0x1p10, "KiB"}}};
  constexpr std::array<Unit, 3> kTraffic = {{{1e9, "GB"}, {1e6, "MB"}, {1e3, "kB"}}};
  constexpr std::array<Unit, 3> kTime = {{{1.0, "s"}, {1e-3, "ms"}, {1e-6, "us"}}};
  return {unit_for(static_cast<double>(memory), kMemory),
          unit_for(static_cast<double>(bytes), kTraffic), unit_for(seconds, kTime)};
}

std::string nodes_of(const Cluster& cluster) {
  if (cluster.world() == 1) return "one rank";
  if (cluster.nodes == 1) return fmt::format("one node of {} ranks", cluster.ranks_per_node);
  return fmt::format("{} nodes of {} rank{}", cluster.nodes, cluster.ranks_per_node,
                     cluster.ranks_per_node == 1 ? "" : "s");
}

std::string heading(const TrainConfig& config, const Advice& advice) {
  const Cluster& cluster = advice.cluster;
  std::string out = fmt::format(
      "{}: {} parameters on {}\n{} tokens a step, {} micro-batch{} of {} x {} tokens on "
      "each rank, {}; computing takes {}\n",
      config.run.name, with_commas(advice.parameters), nodes_of(cluster),
      with_commas(advice.tokens_per_step), advice.micro_batches,
      advice.micro_batches == 1 ? "" : "es", advice.micro_batch, config.facts.context,
      config.precision.compute, time_of(advice.compute_s));
  if (cluster.nodes > 1) {
    out += fmt::format("{}bit/s into each node, ", human_number(8 * cluster.node_bytes_per_s));
  }
  if (cluster.ranks_per_node > 1) {
    out += fmt::format("{}B/s into each rank inside it, ", human_number(cluster.rank_bytes_per_s));
  }
  out += fmt::format("{}FLOP/s", human_number(cluster.flops));
  if (cluster.memory) out += fmt::format(" and {}", human_bytes(*cluster.memory));
  return out + " of each rank\n\n";
}

void add_table(std::string& out, const Advice& advice) {
  const Units units = units_of(advice);
  out += fmt::format("{:<19}  {:-^62}  {:-^18}  {:-^16}\n", "",
                     fmt::format(" memory of a rank, {} ", units.memory.name),
                     fmt::format(" {} a step into ", units.traffic.name),
                     fmt::format(" {} a step ", units.time.name));
  constexpr auto kRow =
      "{:<19}{:>9}{:>9}{:>9}{:>10}{:>9}{:>9}{:>9}{:>10}{:>10}{:>9}{:>9}{:>13}{}\n";
  out += fmt::format(kRow, "preset", "weights", "replica", "grads", "optimizer", "passing",
                     "working", "all", "a node", "a rank", "links", "all", "tokens/s", "");
  for (const AdviceRow& row : advice.rows) {
    const Unit& memory = units.memory;
    out += fmt::format(
        kRow, row.name, memory.of(row.weights), memory.of(row.replica), memory.of(row.gradients),
        memory.of(row.optimizer), memory.of(row.passing), memory.of(row.working),
        memory.of(row.memory), units.traffic.of(row.into_node), units.traffic.of(row.into_rank),
        units.time.of(row.links_s), units.time.of(row.step_s),
        with_commas(std::llround(row.tokens_per_s)), row.fits ? "" : "  does not fit");
  }
  for (const std::string& text : advice.left_out) out += text + "\n";
}

/// What the numbers are of, and what they leave out.
constexpr std::string_view kLegend =
    R"(
passing: gathered weights and gradients of a few units; working: activations and scratch; links: what the slower
of the two needs, both working at the same time. Each micro-batch of a step takes the longer of links and computing;
around computing nothing hides what the root and the first block gather before it and reduce after it. Latency,
recomputation and the update are not counted. Presets within 1 % are alike: the one with less memory is named.
)";

std::string bound_text(const AdviceRow& row, const Advice& advice) {
  const auto longer = [&](std::string_view links) {
    return fmt::format("links {} nodes take longer ({}) than computing ({})", links,
                       time_of(row.links_s), time_of(advice.compute_s));
  };
  switch (row.bound) {
    case Bound::kBetweenNodes:
      return longer("between");
    case Bound::kInsideNodes:
      return longer("inside");
    case Bound::kCompute:
      break;
  }
  return advice.cluster.world() == 1 ? std::string("there is nobody to send to")
                                     : fmt::format("computing takes longer ({}) than links ({})",
                                                   time_of(advice.compute_s), time_of(row.links_s));
}

std::string none_fits(const Advice& advice) {
  if (advice.rows.empty()) return "No preset can be used.\n";
  const AdviceRow& least =
      *std::min_element(advice.rows.begin(), advice.rows.end(),
                        [](const AdviceRow& a, const AdviceRow& b) { return a.memory < b.memory; });
  return fmt::format("No preset fits in {}: {} needs least, {}.\n",
                     human_bytes(*advice.cluster.memory), least.name, human_bytes(least.memory));
}

std::string conclusion(const Advice& advice) {
  const AdviceRow* best = advice.best();
  if (best == nullptr) return none_fits(advice);
  std::string out = fmt::format("{} is the fastest", best->name);
  if (advice.cluster.memory) {
    out += fmt::format(" that fits in {}", human_bytes(*advice.cluster.memory));
  }
  out += fmt::format(": {} tokens/s", with_commas(std::llround(best->tokens_per_s)));
  const AdviceRow* plain = advice.find("zero3");
  if (plain != nullptr && plain != best) {
    out += fmt::format(", {:.2f} times those of zero3", best->tokens_per_s / plain->tokens_per_s);
    if (best->into_node > 0 && best->into_node < plain->into_node) {
      out +=
          fmt::format(" with {:.2f} times fewer bytes between nodes",
                      static_cast<double>(plain->into_node) / static_cast<double>(best->into_node));
    }
  }
  return out + "; " + bound_text(*best, advice) + ".\n";
}

}  // namespace

std::string advice_text(const TrainConfig& config, const Advice& advice) {
  std::string out = heading(config, advice);
  add_table(out, advice);
  return out + std::string(kLegend) + "\n" + conclusion(advice);
}

}  // namespace zpp
