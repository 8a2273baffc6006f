// Training spread over ranks against training in one process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "tests/parallel/tiny_run.h"

namespace zpp {
namespace {

const std::vector<std::string> kPresets = {"ddp", "zero1", "zero2", "zero3", "hsdp", "hybrid"};

/// The same run in one process.
const TinyResult& alone(const TinyRun& run) {
  static std::map<std::pair<std::string, int64_t>, TinyResult> known;
  const std::pair key{run.model, run.micro_batches};
  if (!known.contains(key)) {
    known[key] = run_tiny({.model = run.model, .micro_batches = run.micro_batches});
  }
  return known[key];
}

void expect_same_training(const TinyRun& run) {
  const TinyResult found = run_tiny(run), &wanted = alone(run);
  ASSERT_EQ(found.losses.size(), wanted.losses.size()) << run.describe();
  for (size_t i = 0; i < wanted.losses.size(); ++i) {
    ASSERT_NEAR(found.losses[i], wanted.losses[i], 2e-5 * wanted.losses[i])
        << run.describe() << ", loss of step " << i;
    ASSERT_NEAR(found.norms[i], wanted.norms[i], 1e-5 * wanted.norms[i])
        << run.describe() << ", norm of step " << i;
  }
}

const std::vector<std::vector<int>> kLayouts = {{1}, {2},    {3},    {4},      {6},
                                                {8}, {2, 4}, {3, 6}, {2, 4, 8}};

/// Case (l, p) of a table in which every two values of any two of layout, preset, recompute,
/// prefetch, micro-batches and model meet.
TinyRun pairwise(int l, int p) {
  return {.model = (l / 2 + p) % 2 == 0 ? "gpt" : "llama",
          .nested = kLayouts[static_cast<size_t>(l)],
          .preset = kPresets[static_cast<size_t>(p)],
          .recompute = (l + p / 3) % 2 == 1,
          .prefetch = (l + p) % 3,
          .micro_batches = int64_t{1} << ((p + p / 3 + l / 3) % 3)};
}

class ZeroMatrix : public testing::TestWithParam<int> {};

TEST_P(ZeroMatrix, LossesAndNormsEqualThoseOfOneProcess) {
  for (int p = 0; p < static_cast<int>(kPresets.size()); ++p) {
    expect_same_training(pairwise(GetParam(), p));
  }
}
INSTANTIATE_TEST_SUITE_P(Layouts, ZeroMatrix, testing::Range(0, static_cast<int>(kLayouts.size())));

TEST(Zero, TheTableCoversAllPairs) {
  std::set<std::vector<int64_t>> pairs;
  for (int l = 0; l < static_cast<int>(kLayouts.size()); ++l) {
    for (int p = 0; p < static_cast<int>(kPresets.size()); ++p) {
      const TinyRun run = pairwise(l, p);
      const std::vector<int64_t> values = {
          l, p, run.recompute, run.prefetch, run.micro_batches, run.model == "gpt"};
      for (size_t a = 0; a < values.size(); ++a) {
        for (size_t b = a + 1; b < values.size(); ++b) {
          pairs.insert({static_cast<int64_t>(a), values[a], static_cast<int64_t>(b), values[b]});
        }
      }
    }
  }
  const std::vector<size_t> counts = {kLayouts.size(), kPresets.size(), 2, 3, 3, 2};
  size_t all = 0;
  for (size_t a = 0; a < counts.size(); ++a) {
    for (size_t b = a + 1; b < counts.size(); ++b) all += counts[a] * counts[b];
  }
  EXPECT_EQ(pairs.size(), all);
}

class ZeroBits : public testing::TestWithParam<std::string> {};

TEST_P(ZeroBits, DoNotDependOnTiming) {
  const TinyRun run{.nested = {2, 4}, .preset = GetParam(), .micro_batches = 2, .steps = 10};
  const TinyResult first = run_tiny(run);
  EXPECT_EQ(run_tiny(run), first) << "run twice";
  TinyRun serial = run;
  serial.overlap = false;
  EXPECT_EQ(run_tiny(serial), first) << "without overlap";
  TinyResult start = first;
  start.losses.resize(4);
  start.norms.resize(4);
  start.samples.resize(static_cast<size_t>(4 * run.batch));
  TinyRun delayed = run;
  delayed.steps = 4;
  delayed.jitter_us = 100;
  for (const int64_t prefetch : {0, 2}) {
    delayed.prefetch = prefetch;
    EXPECT_EQ(run_tiny(delayed), start) << "with random delays, prefetch " << prefetch;
  }
  // Updates that are late when the next step begins to gather.
  delayed.jitter_us = 0;
  delayed.compute_jitter_us = 200;
  EXPECT_EQ(run_tiny(delayed), start) << "with slow computing";
}
INSTANTIATE_TEST_SUITE_P(Presets, ZeroBits, testing::ValuesIn(kPresets));

TEST(Zero, Bf16FollowsOneProcessWithinItsRounding) {
  const TinyRun single{.compute = DType::kBF16, .steps = 10};
  const TinyResult wanted = run_tiny(single);
  for (const std::string& preset : kPresets) {
    TinyRun run = single;
    run.nested = {2, 4};
    run.preset = preset;
    const TinyResult found = run_tiny(run);
    for (size_t i = 0; i < wanted.losses.size(); ++i) {
      EXPECT_NEAR(found.losses[i], wanted.losses[i], 0.01 * wanted.losses[i]) << preset;
    }
  }
}

TEST(Zero, TheLedgerEqualsTheFormulasToTheByte) {
  const std::vector<std::vector<int>> layouts = {{2, 4}, {4, 8}, {2, 8}, {2, 6}, {2, 4, 8}};
  for (const std::vector<int>& nested : layouts) {
    for (const std::string& preset : kPresets) {
      for (const int64_t micro_batches : {1, 4}) {
        const TinyRun run{
            .nested = nested, .preset = preset, .micro_batches = micro_batches, .steps = 1};
        LocalRanksOptions options;
        // Bytes are all that counts: no tree for small messages.
        options.links.links = {{}, {.latency_s = 1e-12}, {.latency_s = 1e-12, .bytes_per_s = 1e9}};
        options.links.force = "two-level";
        run_ranks(topology_of(nested), options, [&](LocalRank& rank) {
          const auto engine = make_tiny_engine(rank.runtime, run, &rank.mesh);
          train_tiny(*engine, run);  // records the order of units
          const auto settle = [&] {
            rank.runtime.compute().synchronize();
            rank.mesh.weights.stream().synchronize();
            rank.mesh.grads.stream().synchronize();
          };
          settle();
          rank.ledger.reset();
          train_tiny(*engine, run);
          settle();
          std::vector<int64_t> sent(static_cast<size_t>(rank.topology.levels()) + 1);
          for (const auto& [key, entry] : rank.ledger.entries()) {
            if (key.first.find("control") != std::string::npos) continue;
            for (size_t c = 1; c < entry.sent_bytes.size(); ++c) sent[c] += entry.sent_bytes[c];
          }
          std::vector<UnitTraffic> units;
          for (const auto& unit : engine->parameters().units()) {
            units.push_back(
                {unit->flat_numel(), unit->name() == "root" || unit->name() == "blocks.2"});
          }
          EXPECT_EQ(sent,
                    step_traffic(rank.topology, engine->groups().levels(), units, micro_batches, 4))
              << run.describe() << ", rank " << rank.rank;
        });
      }
    }
  }
}

TEST(Zero, PeakLiveParametersAreThoseOfOneUnitAndThePrefetchedOnes) {
  for (const int64_t prefetch : {0, 1, 2}) {
    run_tiny({.nested = {2}, .prefetch = prefetch, .steps = 3, .inspect = [&](Engine& engine) {
                EXPECT_EQ(engine.hooks().peak_units(), 1 + prefetch);
                // And nothing is alive between steps.
                for (const auto& unit : engine.parameters().units()) EXPECT_FALSE(unit->weights());
                EXPECT_THROW(engine.parameters().find("blocks.1.qkv.weight")->view(), Error);
              }});
  }
}

TEST(Zero, StaticBytesAreTheTablesOnes) {
  // Bytes per parameter, beside padding: bf16 weights, f32 master and moments, f32 gradients.
  struct Case {
    std::string preset;
    double weights, optimizer, grads;  // shares of all that a rank of 2 nodes of 2 keeps
  };
  const std::vector<Case> table = {{"ddp", 1, 1, 1},         {"zero1", 1, 0.25, 1},
                                   {"zero2", 1, 0.25, 0.25}, {"zero3", 0.25, 0.25, 0.25},
                                   {"hsdp", 0.5, 0.5, 0.5},  {"hybrid", 0.5, 0.25, 0.5}};
  for (const Case& c : table) {
    run_tiny({.nested = {2, 4},
              .preset = c.preset,
              .compute = DType::kBF16,
              .steps = 1,
              .inspect = [&](Engine& engine) {
                double flat = 0;
                for (const auto& unit : engine.parameters().units()) {
                  flat += static_cast<double>(unit->flat_numel());
                }
                EXPECT_EQ(static_cast<double>(engine.weight_bytes()), 2 * flat * c.weights);
                EXPECT_EQ(static_cast<double>(engine.grad_bytes()), 4 * flat * c.grads);
                EXPECT_EQ(static_cast<double>(engine.optimizer().master_bytes()),
                          4 * flat * c.optimizer);
                EXPECT_EQ(static_cast<double>(engine.optimizer().moment_bytes()),
                          8 * flat * c.optimizer);
              }});
  }
}

TEST(Zero, EvaluationOfUnevenBatchesEqualsThatOfOneProcess) {
  const auto batches = [](std::vector<std::pair<int64_t, int64_t>> samples) {
    std::vector<HostBatch> out;
    for (const auto& [first, n] : samples) out.push_back(tiny_batch(first, n, true));
    return out;
  };
  double wanted = 0;
  run_tiny({.steps = 2, .inspect = [&](Engine& engine) {
              wanted = engine.evaluate(batches({{0, 2}, {2, 1}, {3, 3}, {6, 1}}));
            }});
  for (const std::string& preset : kPresets) {
    run_tiny({.nested = {2, 4}, .preset = preset, .steps = 2, .inspect = [&](Engine& engine) {
                const std::vector<std::vector<HostBatch>> of_rank = {
                    batches({{3, 3}}), {}, batches({{0, 2}, {2, 1}, {6, 1}}), {}};
                const auto r = static_cast<size_t>(engine.rank());
                EXPECT_NEAR(engine.evaluate(of_rank[r]), wanted, 2e-5 * wanted) << preset;
                EXPECT_EQ(engine.evaluate({}), 0.0);
                const double after = train_tiny(engine, {.steps = 1}).losses[0];
                EXPECT_TRUE(std::isfinite(after)) << "training goes on after evaluation";
              }});
  }
}

TEST(Zero, LogitsAreTheSameOnAllRanksAndThoseOfOneProcess) {
  std::vector<double> wanted;
  run_tiny({.steps = 3, .inspect = [&](Engine& engine) {
              wanted = engine.next_logits({1, 2, 3, 4}, 4);
            }});
  run_tiny({.nested = {3}, .steps = 3, .inspect = [&](Engine& engine) {
              const std::vector<double> found = engine.next_logits({1, 2, 3, 4}, 4);
              for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(found[i], wanted[i], 1e-4);
            }});
}

}  // namespace
}  // namespace zpp
