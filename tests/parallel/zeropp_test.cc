// Coded weights and gradients, and the replica of the weights in each node, against plain ZeRO-3.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/elementwise.h"
#include "tests/parallel/tiny_run.h"

namespace zpp {
namespace {

using testing::HasSubstr;

// The tiny models' matrices have a few hundred elements.
void short_blocks(ZeroConfig& zero) {
  zero.weights.block = 64;
  zero.grads.block_intra = 64;
  zero.grads.block_inter = 32;
}

void node_replica(ZeroConfig& zero) {
  short_blocks(zero);
  zero.replica = "node";
}

void coded_weights(ZeroConfig& zero) {
  short_blocks(zero);
  zero.weights.wire = "int8";
}

void coded_grads(ZeroConfig& zero) {
  short_blocks(zero);
  zero.grads.wire_intra = "int8";
  zero.grads.wire_inter = "int4";
}

void all_of_it(ZeroConfig& zero) {
  coded_weights(zero);
  coded_grads(zero);
  zero.replica = "node";
}

void all_of_it_as_codes(ZeroConfig& zero) {
  all_of_it(zero);
  zero.replica_storage = "wire";
}

/// Trains, evaluates right after, is made to skip a step, and goes on.
struct Story {
  TinyResult first;
  std::vector<double> after;  // evaluations, and losses of what follows the skipped step
  bool operator==(const Story&) const = default;
};

/// Weights that are not numbers, for a step that must change nothing.
template <class T>
void skip_a_step(Engine& engine) {
  const std::vector<HostBatch> batches = {tiny_batch(engine.rank(), 1, false)};
  const auto before = copy_to_host<T>(engine.compute(), engine.kept_weights(2));
  engine.change_weights(2, [&](const View& kept) {
    kernels::fill(engine.compute(), kept, std::numeric_limits<double>::quiet_NaN());
  });
  EXPECT_TRUE(engine.train_step(100, 1e-2, batches).skipped);
  engine.change_weights(2,
                        [&](const View& kept) { copy_from_host(engine.compute(), before, kept); });
}

Story tell(TinyRun run) {
  std::vector<Story> stories(static_cast<size_t>(run.world()));
  run.inspect = [&](Engine& engine) {
    std::vector<double>& after = stories[static_cast<size_t>(engine.rank())].after;
    const std::vector<HostBatch> held_out = {tiny_batch(1000 + engine.rank(), 2, true)};
    after.push_back(engine.evaluate(held_out));
    after.push_back(engine.evaluate(held_out));
    run.compute == DType::kF32 ? skip_a_step<float>(engine) : skip_a_step<bf16>(engine);
    after.push_back(engine.evaluate(held_out));
    TinyRun more = run;
    more.steps = 3;
    for (const double loss : train_tiny(engine, more).losses) after.push_back(loss);
    after.push_back(engine.evaluate(held_out));
  };
  const TinyResult trained = run_tiny(run);
  for (Story& story : stories) story.first = trained;
  for (const Story& story : stories) EXPECT_EQ(story.after, stories[0].after);
  return stories[0];
}

TEST(NodeReplica, ChangesNoBit) {
  struct Case {
    std::vector<int> nested;
    bool recompute;
    int64_t prefetch, micro_batches, jitter_us;
  };
  const std::vector<Case> cases = {{{2, 4}, false, 1, 1, 0},    {{2, 4}, true, 2, 4, 50},
                                   {{1, 2}, false, 2, 2, 0},    {{3, 6}, true, 1, 1, 0},
                                   {{2, 4, 8}, false, 2, 2, 0}, {{4, 8}, true, 0, 1, 0}};
  for (const Case& c : cases) {
    TinyRun run{.nested = c.nested,
                .recompute = c.recompute,
                .prefetch = c.prefetch,
                .micro_batches = c.micro_batches,
                .steps = c.jitter_us > 0 ? 12 : 50};
    run.zero = short_blocks;
    const Story plain = tell(run);
    run.zero = node_replica;
    run.jitter_us = c.jitter_us;
    EXPECT_EQ(tell(run), plain) << run.describe();
  }
}

TEST(NodeReplica, OfCodesHasTheBitsOfAReplicaOfWeights) {
  for (const std::vector<int>& nested : {std::vector{2, 4}, {1, 2}, {3, 6}}) {
    TinyRun run{.nested = nested, .recompute = true, .micro_batches = 2, .steps = 10};
    run.zero = coded_weights;
    const Story plain = tell(run);
    run.zero = [](ZeroConfig& zero) {
      coded_weights(zero);
      zero.replica = "node";
    };
    EXPECT_EQ(tell(run), plain);
    run.zero = [](ZeroConfig& zero) {
      coded_weights(zero);
      zero.replica = "node";
      zero.replica_storage = "wire";
    };
    EXPECT_EQ(tell(run), plain);
  }
}

TEST(CodedTraining, FollowsPlainTraining) {
  for (const std::vector<int>& nested : {std::vector{2, 4}, {1, 2}, {3, 6}, {2, 4, 8}}) {
    for (const char* preset : {"zero3", "hybrid", "zero2", "zero1"}) {
      TinyRun run{.nested = nested, .preset = preset, .micro_batches = 2, .steps = 20};
      const TinyResult plain = run_tiny(run);
      const auto follows = [&](void (*zero)(ZeroConfig&), double tolerance) {
        run.zero = zero;
        const TinyResult found = run_tiny(run);
        EXPECT_NEAR(found.losses.back(), plain.losses.back(), tolerance * plain.losses.back())
            << run.describe();
        EXPECT_NE(found.losses, plain.losses) << "nothing was coded";
      };
      const bool nodes_share = std::string(preset) == "hybrid" && nested[0] == 1;
      if (!nodes_share) follows(coded_weights, 0.01);
      follows(coded_grads, 0.03);
    }
    TinyRun run{.nested = nested, .steps = 20};
    const TinyResult plain = run_tiny(run);
    run.zero = all_of_it;
    EXPECT_NEAR(run_tiny(run).losses.back(), plain.losses.back(), 0.03 * plain.losses.back());
  }
}

TEST(CodedTraining, BitsDependOnNothingButTheSettings) {
  for (const auto zero : {all_of_it, all_of_it_as_codes}) {
    for (const DType compute : {DType::kF32, DType::kBF16}) {
      TinyRun run{.nested = {2, 4}, .micro_batches = 2, .compute = compute, .steps = 8};
      run.zero = zero;
      const Story once = tell(run);
      EXPECT_EQ(tell(run), once) << "run twice";
      TinyRun serial = run;
      serial.overlap = false;
      EXPECT_EQ(tell(serial), once) << "without overlap";
      for (const int64_t chunks : {1, 3}) {
        run.zero = [=](ZeroConfig& config) {
          zero(config);
          config.grads.chunks = chunks;
        };
        EXPECT_EQ(tell(run), once) << chunks << " chunks";
      }
      run.prefetch = 2;
      run.jitter_us = 50;
      EXPECT_EQ(tell(run), once) << "with random delays";
    }
  }
}

TEST(CodedTraining, BitsDependOnNothingWhereUpdatesArePublishedToo) {
  for (const char* preset : {"hybrid", "zero1"}) {
    for (const DType compute : {DType::kF32, DType::kBF16}) {
      TinyRun run{.nested = {2, 4}, .preset = preset, .micro_batches = 2, .compute = compute};
      run.steps = 6;
      run.zero = [](ZeroConfig& zero) {
        coded_weights(zero);
        zero.grads.wire_inter = "int4";
        zero.grads.rounding = "stochastic";
      };
      const Story once = tell(run);
      TinyRun serial = run;
      serial.overlap = false;
      EXPECT_EQ(tell(serial), once) << preset << " without overlap";
      run.jitter_us = 50;
      EXPECT_EQ(tell(run), once) << preset << " with random delays";
    }
  }
}

TEST(CodedTraining, RanksWithOtherSettingsAreFound) {
  TinyRun run{.nested = {2, 4}, .steps = 1};
  const auto errors = run_ranks_to_errors(topology_of(run.nested), {}, [&](LocalRank& rank) {
    TinyRun mine = run;
    mine.zero = [&](ZeroConfig& zero) {
      coded_grads(zero);
      zero.grads.hadamard = rank.rank == 3;
    };
    make_tiny_engine(rank.runtime, mine, &rank.mesh);
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_THAT(error->what(), testing::ContainsRegex("the wires differ|aborted"));
  }
}

TEST(CodedTraining, TransformsAndRandomRoundingTrainToo) {
  TinyRun run{.nested = {2, 4}, .steps = 20};
  const TinyResult plain = run_tiny(run);
  for (const bool hadamard : {false, true}) {
    for (const char* rounding : {"nearest", "stochastic"}) {
      run.zero = [&](ZeroConfig& zero) {
        coded_grads(zero);
        zero.grads.hadamard = hadamard;
        zero.grads.rounding = rounding;
      };
      const TinyResult found = run_tiny(run);
      EXPECT_NEAR(found.losses.back(), plain.losses.back(), 0.04 * plain.losses.back());
      EXPECT_EQ(run_tiny(run), found);
    }
  }
}

/// All weights of unit i after a few steps, from the parts of all ranks.
std::vector<float> weights_after(TinyRun run, size_t unit) {
  std::vector<float> all;
  std::mutex mutex;
  run.inspect = [&](Engine& engine) {
    const auto part = copy_to_host<float>(engine.compute(), engine.kept_weights(unit));
    const Range range = engine.hooks().kept_range(unit);
    const std::lock_guard lock(mutex);
    all.resize(static_cast<size_t>(engine.parameters().units()[unit]->flat_numel()));
    std::copy(part.begin(), part.end(), all.begin() + range.begin);
  };
  run_tiny(run);
  return all;
}

TEST(CodedTraining, AWrongScaleWouldShowInTheStepsOfSgd) {
  // AdamW does not see the size of gradients; SGD moves weights by lr times what it is given.
  TinyRun run{.nested = {2, 4}, .micro_batches = 2, .steps = 0, .optimizer = "sgd"};
  run.zero = short_blocks;
  const std::vector<float> start = weights_after(run, 1);
  run.steps = 3;
  const std::vector<float> plain = weights_after(run, 1);
  for (const auto zero : {coded_weights, coded_grads, all_of_it, all_of_it_as_codes}) {
    // Same places of parameters in the unit: grids differ only between zero and the others.
    TinyRun coded = run;
    coded.zero = zero;
    coded.steps = 0;
    const std::vector<float> coded_start = weights_after(coded, 1);
    coded.steps = 3;
    const std::vector<float> end = weights_after(coded, 1);
    const auto moved = [](const std::vector<float>& from, const std::vector<float>& to) {
      double squares = 0;
      for (size_t i = 0; i < from.size(); ++i) {
        squares += std::pow(static_cast<double>(to[i]) - from[i], 2);
      }
      return std::sqrt(squares);
    };
    EXPECT_NEAR(moved(coded_start, end), moved(start, plain), 0.03 * moved(start, plain));
  }
}

TEST(CodedTraining, ANanOnOneRankSkipsTheStepOnAll) {
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    TinyRun run{.nested = {2, 4}, .compute = compute, .steps = 2};
    run.zero = all_of_it_as_codes;
    for (const double bad :
         {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
      run.inspect = [&](Engine& engine) {
        std::vector<HostBatch> batches = {tiny_batch(engine.rank(), 1, false)};
        const Range range = engine.hooks().kept_range(1);
        const Parameter& p = *engine.parameters().find("blocks.0.qkv.weight");
        const int64_t at = p.offset() + 5;
        engine.change_weights(1, [&](const View& kept) {
          if (at < range.begin || at >= range.end) return;
          kernels::fill(engine.compute(), kept.slice(0, at - range.begin, at - range.begin + 1),
                        bad);
        });
        EXPECT_TRUE(engine.train_step(9, 1e-2, batches).skipped);
        EXPECT_THAT(engine.describe_nonfinite(), HasSubstr("the weights of blocks.0.qkv.weight"));
      };
      run_tiny(run);
    }
  }
}

struct Sent {
  std::vector<int64_t> weights, grads;  // of all ranks, by link class
};

/// What all ranks send in a step.
Sent sent_in_a_step(TinyRun run) {
  run.steps = 2;
  Sent sent{std::vector<int64_t>(3), std::vector<int64_t>(3)};
  std::mutex mutex;
  LocalRanksOptions options;
  options.links.force = "two-level";
  run_ranks(topology_of(run.nested), options, [&](LocalRank& rank) {
    const auto engine = make_tiny_engine(rank.runtime, run, &rank.mesh);
    train_tiny(*engine, run);  // records the order of units
    const auto settle = [&] {
      rank.runtime.compute().synchronize();
      rank.mesh.weights.stream().synchronize();
      rank.mesh.grads.stream().synchronize();
    };
    settle();
    rank.ledger.reset();
    TinyRun one = run;
    one.steps = 1;
    train_tiny(*engine, one);
    settle();
    const std::lock_guard lock(mutex);
    for (const auto& [key, entry] : rank.ledger.entries()) {
      const bool weights = key.first.starts_with("weights");
      if (!weights && !key.first.starts_with("grads")) continue;
      for (size_t c = 0; c < 3; ++c)
        (weights ? sent.weights : sent.grads)[c] += entry.sent_bytes[c];
    }
  });
  return sent;
}

/// Bytes that all packets of a model take, one after the other.
int64_t packed_bytes(const std::vector<int>& nested, const WireFormat& format,
                     void (*zero)(ZeroConfig&)) {
  int64_t bytes = 0;
  TinyRun run{.nested = nested, .steps = 1};
  run.zero = zero;
  run.inspect = [&](Engine& engine) {
    if (engine.rank() != 0) return;
    for (const auto& unit : engine.parameters().units()) {
      bytes += PackedCells(*segments_of(*unit), 0, unit->flat_numel(), engine.world(), format,
                           DType::kF32)
                   .bytes();
    }
  };
  run_tiny(run);
  return bytes;
}

TEST(CodedTraffic, WeightsCrossNodesOnceAStepHoweverManyMicroBatches) {
  for (const int64_t micro_batches : {1, 4}) {
    TinyRun run{.nested = {2, 4}, .recompute = true, .micro_batches = micro_batches};
    run.zero = all_of_it;
    const Sent sent = sent_in_a_step(run);
    // Each node is sent the half that it does not have, once.
    EXPECT_EQ(sent.weights[2], packed_bytes({2, 4}, {8, 64}, all_of_it));
    // And each micro-batch's gradients: both nodes exchange half of the sums.
    EXPECT_EQ(sent.grads[2], micro_batches * packed_bytes({2, 4}, {4, 32}, all_of_it));
  }
}

TEST(CodedTraffic, AtTheBoundaryOfHybridNothingDependsOnMicroBatches) {
  for (const int64_t micro_batches : {1, 4}) {
    TinyRun run{.nested = {2, 4}, .preset = "hybrid", .micro_batches = micro_batches};
    const auto zero = [](ZeroConfig& config) {
      short_blocks(config);
      config.weights.wire = "int8";
      config.grads.wire_inter = "int4";
    };
    run.zero = zero;
    const Sent sent = sent_in_a_step(run);
    EXPECT_EQ(sent.weights[2], packed_bytes({2, 4}, {8, 64}, zero));
    EXPECT_EQ(sent.grads[2], packed_bytes({2, 4}, {4, 32}, zero));
  }
}

TEST(ZeroWires, WhatCannotWorkIsRefusedInOneSentence) {
  const auto error_of = [](const std::vector<int>& nested, const std::string& preset,
                           void (*zero)(ZeroConfig&), DType compute = DType::kF32) {
    ZeroConfig config;
    config.preset = preset;
    zero(config);
    const Topology topology = topology_of(nested);
    try {
      zero_wires(config, topology, shard_levels(config, topology), compute);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(error_of({2, 4}, "hybrid", node_replica), HasSubstr("replica node"));
  EXPECT_THAT(error_of({2, 4}, "hsdp", coded_weights), HasSubstr("weights.wire int8"));
  EXPECT_THAT(error_of({2, 4}, "hsdp", coded_grads), HasSubstr("grads.wire_inter int4"));
  EXPECT_THAT(error_of({2, 4}, "ddp", coded_grads), HasSubstr("grads.wire_intra int8"));
  EXPECT_THAT(error_of({2, 4}, "zero3", coded_weights, DType::kF64), HasSubstr("f64"));
  const auto codes_of_nothing = [](ZeroConfig& zero) {
    zero.replica = "node";
    zero.replica_storage = "wire";
  };
  EXPECT_THAT(error_of({2, 4}, "zero3", codes_of_nothing), HasSubstr("replica_storage wire"));
  const auto odd_blocks = [](ZeroConfig& zero) {
    coded_grads(zero);
    zero.grads.block_intra = 32 * 37;
    zero.grads.block_inter = 32 * 101;
  };
  EXPECT_THAT(error_of({2, 4}, "zero3", odd_blocks), HasSubstr("powers of two"));
  EXPECT_EQ(error_of({2, 4}, "zero++", short_blocks), "");
}

TEST(ZeroWires, WhatCannotHelpIsSaidOnce) {
  ZeroConfig config;
  config.preset = "zero++";
  const Topology one_node = topology_of({4});
  const ZeroWires wires = zero_wires(config, one_node, shard_levels(config, one_node), DType::kF32);
  EXPECT_EQ(wires.notes.size(), 3u);
  EXPECT_FALSE(wires.weights.coded());
  EXPECT_FALSE(wires.replica);
  EXPECT_TRUE(wires.grads_intra.coded());
}

}  // namespace
}  // namespace zpp
