#include "parallel/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <sstream>

#include "core/files.h"
#include "parallel/session.h"

namespace zpp {
namespace {

// Resident memory beside the pool: program, libraries, compiled products and their packing buffers.
// Measured on x86-64 Linux with a model of 2 million parameters: 13 MiB without the library's
// products, 20 with them.
constexpr int64_t kProcessBytes = 16LL << 20;
// The kernel maps this much of a cached file around a page that is touched.
constexpr double kFaultAroundBytes = 65536.0;

/// `name` with numbers replaced, so that blocks of one stack look alike.
std::string pattern_of(std::string_view name) {
  std::string pattern;
  for (const char c : name) {
    const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    if (!digit) pattern += c;
    if (digit && !pattern.ends_with('#')) pattern += '#';
  }
  return pattern;
}

bool alike(const Plan::UnitRow& a, const Plan::UnitRow& b) {
  if (pattern_of(a.first) != pattern_of(b.first)) return false;
  return std::equal(a.parameters.begin(), a.parameters.end(), b.parameters.begin(),
                    b.parameters.end(), [](const auto& x, const auto& y) {
                      return pattern_of(x.name) == pattern_of(y.name) && x.shape == y.shape;
                    });
}

std::vector<Plan::UnitRow> unit_rows(const ParameterTable& table) {
  std::vector<Plan::UnitRow> rows;
  for (const auto& unit : table.units()) {
    Plan::UnitRow row{.first = unit->name(), .last = unit->name(), .parameters = {}};
    for (const auto& p : unit->parameters()) {
      row.parameters.push_back({p->name(), p->shape()});
      row.numel += p->numel();
    }
    if (!rows.empty() && alike(rows.back(), row)) {
      rows.back().last = row.first;
      ++rows.back().copies;
    } else {
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

HostBatch blank_batch(int64_t first, int64_t samples, int64_t length, bool masked) {
  const auto n = static_cast<size_t>(samples * length);
  return {.first_sample = first,
          .samples = samples,
          .length = length,
          .tokens = std::vector<int32_t>(n, 0),
          .targets = std::vector<int32_t>(n, 0),
          .doc_start = std::vector<int32_t>(masked ? n : 0, 0),
          .valid = samples * length};
}

/// The parts of a run, each as often as it takes for memory to settle.
void walk(Runtime& runtime, Engine& engine, const TrainConfig& config) {
  // More micro-batches than two repeat the second.
  TrainConfig shorter = config;
  const int64_t world = engine.world(), micro = config.micro_batch(world);
  shorter.train.micro_batch = micro;
  shorter.train.global_batch = micro * world * std::min<int64_t>(config.micro_batches(world), 2);
  const BatchSource blank = [&config](int64_t first, int64_t samples) {
    return blank_batch(first, samples, config.facts.context, config.data.document_mask);
  };
  const bool evaluates = config.train.eval_every > 0 && !config.data.val.empty();
  const auto evaluate = [&] {
    if (evaluates) run_evaluation(engine, shorter, 2 * micro * world, blank);
  };
  evaluate();
  for (int64_t step = 0; step < std::min<int64_t>(config.train.steps, 2); ++step) {
    run_step(engine, shorter, step, blank);
  }
  evaluate();
  if (config.train.steps > 2) run_step(engine, shorter, 2, blank);
  if (config.sample.tokens > 0) {
    shorter.sample.tokens = std::min(config.sample.tokens, config.facts.context);
    run_sample(engine, shorter);
  }
  runtime.compute().synchronize();
}

/// Bytes of the files that the run will have touched, its training windows being random.
int64_t touched_bytes(const TrainConfig& config, const PlanData& data) {
  const auto size = static_cast<double>(data.train_bytes);
  const double windows =
      static_cast<double>(config.train.steps) * static_cast<double>(config.train.global_batch);
  const double share = size > 0 ? 1.0 - std::exp(-windows * kFaultAroundBytes / size) : 0.0;
  return data.val_bytes + static_cast<int64_t>(size * share);
}

/// Nested groups of the ranks that `config` would have, or usual ones where that depends on hosts.
Topology pretended_topology(const TrainConfig& config, int64_t world) {
  std::vector<int> nested = world == 1 ? std::vector<int>{1} : nested_sizes(config.launch, world);
  if (nested.empty()) {
    constexpr int64_t kUsualNode = 8;
    const int64_t node =
        config.launch.ranks_per_node > 1 ? config.launch.ranks_per_node : kUsualNode;
    if (world > node && world % node == 0) nested.push_back(static_cast<int>(node));
    nested.push_back(static_cast<int>(world));
  }
  return Topology::nested(nested);
}

std::string describe(const Topology& topology) {
  std::string text = fmt::format("{} ranks", topology.world());
  for (int level = 1; level < topology.levels(); ++level) {
    text += fmt::format("{} {}", level == 1 ? " in groups of" : ",", topology.group_size(level));
  }
  return text;
}

}  // namespace

Plan make_plan(const TrainConfig& config, const std::optional<PlanData>& data, int64_t world) {
  check_world(config, world);
  Runtime runtime(runtime_options(config, /*dry=*/true));
  measure_peak_flops(runtime, config.compute());
  const Topology topology = pretended_topology(config, world);
  const auto engine =
      std::make_unique<Engine>(runtime, engine_options(config), model_maker(config), topology);
  walk(runtime, *engine, config);

  Plan plan;
  plan.world = world;
  if (world > 1) plan.groups = describe(topology);
  plan.units = unit_rows(engine->parameters());
  plan.parameters = engine->parameters().numel();
  plan.weights = engine->weight_bytes();
  plan.replica = engine->hooks().replica_bytes();
  plan.master = engine->optimizer().master_bytes();
  plan.moments = engine->optimizer().moment_bytes();
  plan.gradients = engine->grad_bytes();
  plan.pool = runtime.pool().stats().held_bytes;
  plan.passing = engine->hooks().passing_bytes();
  plan.working = plan.pool - plan.weights - plan.replica - plan.master - plan.moments -
                 plan.gradients - plan.passing;
  plan.process = kProcessBytes;
  plan.mapped = data ? touched_bytes(config, *data) : 0;
  plan.available = available_memory();
  plan.steps = config.train.steps;
  plan.tokens_per_step = config.tokens_per_step();
  if (data) {
    plan.steps_per_epoch =
        static_cast<double>(data->windows) / static_cast<double>(config.train.global_batch);
  }
  plan.flops_per_token = engine->model().flops_per_token();
  return plan;
}

std::optional<int64_t> available_memory() {
  std::optional<int64_t> least;
  const auto consider = [&least](int64_t bytes) { least = std::min(least.value_or(bytes), bytes); };
  const auto read = [](const char* path) {
    try {
      return read_file(path);
    } catch (const Error&) {
      return std::string();  // another kernel, another container: not known
    }
  };
  const std::string meminfo = read("/proc/meminfo");
  constexpr std::string_view kKey = "MemAvailable:";
  if (const size_t at = meminfo.find(kKey); at != std::string::npos) {
    int64_t kib = 0;
    if (std::istringstream(meminfo.substr(at + kKey.size())) >> kib) consider(kib * 1024);
  }
  for (const char* path :
       {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    int64_t limit = 0;
    if (std::istringstream(read(path)) >> limit) consider(limit);
  }
  return least;
}

}  // namespace zpp
