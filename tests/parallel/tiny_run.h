// A training run that takes milliseconds, on one rank or many, and what it did.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/rng.h"
#include "model/registry.h"
#include "parallel/engine.h"
#include "parallel/session.h"
#include "tests/comm/local_ranks.h"

namespace zpp {

struct TinyRun {
  std::string model = "gpt";
  std::vector<int> nested = {1};
  std::string preset = "zero3";
  bool recompute = false;
  int64_t prefetch = 1;
  int64_t micro_batches = 1;
  bool overlap = true;
  int64_t jitter_us = 0;          // of streams and messages
  int64_t compute_jitter_us = 0;  // of the compute streams alone
  DType compute = DType::kF32;
  double dropout = 0.1;
  int64_t steps = 20;
  int64_t batch = 96;  // sequences in a step, of all ranks
  bool masked = true;
  std::string force = {};  // algorithm
  std::vector<std::string> frozen = {};
  std::string optimizer = "adamw";
  /// Further settings of the section.
  std::function<void(ZeroConfig&)> zero = {};
  /// Called on each rank after the last step.
  std::function<void(Engine&)> inspect = {};

  int world() const { return nested.back(); }
  /// Sequences that each of `ranks` computes at once.
  int64_t micro_batch(int ranks) const { return batch / micro_batches / ranks; }
  std::string describe() const {
    std::string text = model + " " + preset + " ranks";
    for (const int n : nested) text += "/" + std::to_string(n);
    return text + (recompute ? " recompute" : "") + " prefetch " + std::to_string(prefetch) +
           " micro-batches " + std::to_string(micro_batches) + (overlap ? "" : " serial") +
           (jitter_us > 0 ? " jitter" : "");
  }
};

constexpr int64_t kTinyContext = 4;
constexpr int64_t kTinyVocab = 32;
constexpr double kTinyLr = 3e-3;

/// Samples [first, first + n): sequences that count in steps, some with their end masked.
inline HostBatch tiny_batch(int64_t first, int64_t n, bool masked) {
  HostBatch b{.first_sample = first,
              .samples = n,
              .length = kTinyContext,
              .tokens = {},
              .targets = {},
              .doc_start = {},
              .valid = 0};
  for (int64_t s = first; s < first + n; ++s) {
    const int64_t from = static_cast<int64_t>(mix_hash(1, static_cast<uint64_t>(s)) % kTinyVocab);
    const int64_t by = 1 + s % 3;
    for (int64_t t = 0; t < kTinyContext; ++t) {
      const bool valid = !masked || t + s % 4 < kTinyContext;
      b.tokens.push_back(static_cast<int32_t>((from + by * t) % kTinyVocab));
      b.targets.push_back(valid ? static_cast<int32_t>((from + by * (t + 1)) % kTinyVocab) : -1);
      b.valid += valid ? 1 : 0;
    }
  }
  return b;
}

struct TinyResult {
  std::vector<double> losses, norms;
  std::vector<int64_t> samples;  // in the order in which they were asked for
  bool operator==(const TinyResult&) const = default;
};

inline std::unique_ptr<Engine> make_tiny_engine(Runtime& runtime, const TinyRun& run,
                                                const Mesh* mesh) {
  EngineOptions options{.compute = run.compute,
                        .seed = 3,
                        .recompute = run.recompute,
                        .grad_clip = 1.0,
                        .optimizer = {.name = run.optimizer, .lr = kTinyLr, .eps = 1e-6},
                        .frozen = run.frozen};
  options.zero.preset = run.preset;
  options.zero.prefetch_units = run.prefetch;
  options.zero.overlap = run.overlap;
  if (run.zero) run.zero(options.zero);
  const std::string own = run.model == "gpt" ? "\"dropout\": " + std::to_string(run.dropout)
                                             : std::string("\"ffn\": 40");
  const std::string json =
      "{\"layers\": 3, \"width\": 16, \"heads\": 2, \"context\": " + std::to_string(kTinyContext) +
      ", \"vocab\": " + std::to_string(kTinyVocab) + ", " + own + "}";
  return std::make_unique<Engine>(
      runtime, options,
      [&](const Scope& scope) { return find_model(run.model)->create(scope, json); }, mesh);
}

/// One rank's share of the run.
inline TinyResult train_tiny(Engine& engine, const TinyRun& run) {
  TrainConfig config;
  config.train.global_batch = run.batch;
  config.train.micro_batch = run.micro_batch(engine.world());
  config.optimizer.lr = kTinyLr;
  config.schedule.name = "constant";
  TinyResult result;
  const auto source = [&](int64_t first, int64_t n) {
    for (int64_t s = first; s < first + n; ++s) result.samples.push_back(s);
    return tiny_batch(first, n, run.masked);
  };
  for (int64_t step = 0; step < run.steps; ++step) {
    const StepStats stats = run_step(engine, config, step, source);
    result.losses.push_back(stats.loss);
    result.norms.push_back(stats.grad_norm);
  }
  return result;
}

/// What the ranks found together: their samples, micro-batch by micro-batch, in rank order. Fails
/// the test when they disagree on the rest.
inline TinyResult merge(const TinyRun& run, const std::vector<TinyResult>& ranks) {
  TinyResult all{ranks[0].losses, ranks[0].norms, {}};
  const auto n = static_cast<std::ptrdiff_t>(run.micro_batch(run.world()));
  for (size_t r = 1; r < ranks.size(); ++r) {
    EXPECT_EQ(ranks[r].losses, all.losses) << run.describe() << ", rank " << r;
    EXPECT_EQ(ranks[r].norms, all.norms) << run.describe() << ", rank " << r;
  }
  for (std::ptrdiff_t i = 0; i < run.steps * run.micro_batches; ++i) {
    for (const TinyResult& rank : ranks) {
      const auto first = rank.samples.begin() + i * n;
      all.samples.insert(all.samples.end(), first, first + n);
    }
  }
  return all;
}

/// All ranks' runs; fails the test when a rank does or ranks disagree.
inline TinyResult run_tiny(const TinyRun& run) {
  LocalRanksOptions options;
  options.links.force = run.force;
  options.runtime.jitter_us = std::max(run.jitter_us, run.compute_jitter_us);
  options.stream_jitter_us = run.jitter_us;
  options.network.jitter_us = run.jitter_us;
  std::vector<TinyResult> results(static_cast<size_t>(run.world()));
  if (run.world() == 1) {
    Runtime runtime(options.runtime);
    const auto engine = make_tiny_engine(runtime, run, nullptr);
    results[0] = train_tiny(*engine, run);
    if (run.inspect) run.inspect(*engine);
    return results[0];
  }
  run_ranks(topology_of(run.nested), options, [&](LocalRank& rank) {
    Mesh mesh{.topology = rank.mesh.topology,
              .weights = rank.mesh.weights,
              .grads = rank.mesh.grads,
              .ledger = &rank.ledger};
    const auto engine = make_tiny_engine(rank.runtime, run, &mesh);
    results[static_cast<size_t>(rank.rank)] = train_tiny(*engine, run);
    if (run.inspect) run.inspect(*engine);
  });
  return merge(run, results);
}

}  // namespace zpp
