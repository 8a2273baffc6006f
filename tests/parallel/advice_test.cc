#include "parallel/advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <vector>

#include "core/files.h"
#include "parallel/plan.h"
#include "tests/parallel/tiny_run.h"

namespace zpp {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

const std::vector<std::string> kPlain = {"ddp", "zero1", "zero2", "zero3", "hsdp", "hybrid"};

TEST(StepBytes, OfPlainPresetsAreWorldTimesWhatOneRankSends) {
  for (const std::vector<int>& nested :
       {std::vector{8}, {2, 4}, {1, 4}, {8, 384}, {3, 6}, {2, 4, 8}}) {
    const Topology topology = topology_of(nested);
    const int64_t world = topology.world();
    const auto segments = std::make_shared<const Segments>();
    const std::vector<UnitWire> units = {{world * 64 * 7, segments, true},
                                         {world * 64 * 30, segments, false},
                                         {world * 64 * 29, segments, false},
                                         {world * 64 * 30, segments, true}};
    std::vector<UnitTraffic> plain;
    for (const UnitWire& unit : units) plain.push_back({unit.flat, unit.kept});
    for (const std::string& preset : kPlain) {
      ZeroConfig zero;
      zero.preset = preset;
      const ShardLevels levels = shard_levels(zero, topology);
      const ZeroWires wires = zero_wires(zero, topology, levels, DType::kBF16);
      for (const int64_t micro_batches : {1, 3}) {
        const StepBytes all =
            step_bytes(topology, levels, wires, DType::kBF16, units, micro_batches);
        const std::vector<int64_t> one = step_traffic(topology, levels, plain, micro_batches, 2);
        for (int c = 1; c <= topology.levels(); ++c) {
          EXPECT_EQ(all.of(c), world * one[static_cast<size_t>(c)])
              << preset << ", class " << c << " of " << topology.levels() << ", " << world
              << " ranks";
        }
      }
    }
  }
}

// The tiny models' matrices have a few hundred elements.
void short_blocks(ZeroConfig& zero) {
  zero.weights.block = 64;
  zero.grads.block_intra = 64;
  zero.grads.block_inter = 32;
}

/// What all ranks of a run really send in a step.
StepBytes ledger_of(TinyRun run) {
  const size_t classes = run.nested.size() + 1;
  StepBytes sent{std::vector<int64_t>(classes), std::vector<int64_t>(classes)};
  std::mutex mutex;
  LocalRanksOptions options;
  options.links.force = "two-level";
  run_ranks(topology_of(run.nested), options, [&](LocalRank& rank) {
    const auto engine = make_tiny_engine(rank.runtime, run, &rank.mesh);
    TinyRun one = run;
    one.steps = 1;
    const auto step = [&] {
      train_tiny(*engine, one);
      rank.runtime.compute().synchronize();
      rank.mesh.weights.stream().synchronize();
      rank.mesh.grads.stream().synchronize();
    };
    step();  // records the order of units
    rank.ledger.reset();
    step();
    const std::lock_guard lock(mutex);
    for (const auto& [key, entry] : rank.ledger.entries()) {
      const bool weights = key.first.starts_with("weights");
      if (!weights && !key.first.starts_with("grads")) continue;
      std::vector<int64_t>& into = weights ? sent.weights : sent.grads;
      for (size_t c = 1; c < classes; ++c) into[c] += entry.sent_bytes[c];
    }
  });
  return sent;
}

/// What the arithmetic says of it, with no rank started.
StepBytes counted(const TinyRun& run) {
  const Topology topology = topology_of(run.nested);
  ZeroConfig zero;
  zero.preset = run.preset;
  run.zero(zero);
  const ShardLevels levels = shard_levels(zero, topology);
  const ZeroWires wires = zero_wires(zero, topology, levels, run.compute);
  std::vector<UnitWire> units;
  TinyRun alone = run;
  alone.nested = {1};
  alone.preset = "zero3";
  alone.zero = {};
  alone.steps = 0;
  alone.inspect = [&](Engine& engine) {
    engine.compute().synchronize();
    for (const auto& unit : engine.parameters().units()) {
      unit->layout(ShardLayout::kAlignment, wires.grid * topology.world(), wires.grid);
      units.push_back({unit->flat_numel(), segments_of(*unit), false, unit->frozen()});
    }
  };
  run_tiny(alone);
  units.front().kept = units.back().kept = true;
  return step_bytes(topology, levels, wires, run.compute, units, run.micro_batches);
}

const std::vector<std::string> kNone, kFrozen = {"blocks.1", "blocks.0.qkv.weight"};

class CodedStepBytes : public testing::TestWithParam<std::vector<int>> {};

TEST_P(CodedStepBytes, EqualTheLedgerToTheByte) {
  struct Case {
    const char* preset;
    void (*zero)(ZeroConfig&);
  };
  const auto boundary = [](ZeroConfig& zero) {
    short_blocks(zero);
    zero.weights.wire = "int8";
    zero.grads.wire_inter = "int4";
  };
  const std::vector<Case> cases = {{"zero++", short_blocks},
                                   {"zero++",
                                    [](ZeroConfig& zero) {
                                      short_blocks(zero);
                                      zero.replica_storage = "wire";
                                    }},
                                   {"zero3", [](ZeroConfig& zero) { zero.replica = "node"; }},
                                   {"zero3", boundary},
                                   {"zero2", boundary},
                                   {"zero1", boundary},
                                   {"hybrid", boundary},
                                   {"hybrid", [](ZeroConfig& zero) {
                                      short_blocks(zero);
                                      zero.grads.wire_intra = "int8";
                                    }}};
  for (const Case& c : cases) {
    for (const int64_t micro_batches : {1, 2}) {
      for (const DType compute : {DType::kF32, DType::kBF16}) {
        const TinyRun run{.nested = GetParam(),
                          .preset = c.preset,
                          .micro_batches = micro_batches,
                          .compute = compute,
                          .batch = 48,
                          .frozen = compute == DType::kF32 ? kNone : kFrozen,
                          .zero = c.zero};
        const StepBytes found = counted(run), wanted = ledger_of(run);
        const auto which = [&] {
          return testing::Message() << run.describe() << ", case " << &c - cases.data();
        };
        EXPECT_GT(wanted.weights.back(), 0) << which();
        EXPECT_GT(wanted.grads.back(), 0) << which();
        EXPECT_EQ(found.weights, wanted.weights) << which();
        // The norm and the loss travel under a name of their own.
        EXPECT_EQ(found.grads, wanted.grads) << which();
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Layouts, CodedStepBytes,
                         testing::Values(std::vector{2, 4}, std::vector{1, 2}, std::vector{3, 6},
                                         std::vector{2, 4, 8}));

TrainConfig gpt_20b(const std::vector<std::string>& changes = {}) {
  const std::string file = "configs/gpt-20b.json";
  return parse_train_config(read_file(file), file, changes);
}

const Cluster kPaper{.nodes = 48,
                     .ranks_per_node = 8,
                     .node_bytes_per_s = 100e9 / 8,
                     .rank_bytes_per_s = 600e9,
                     .flops = 125e12,
                     .memory = int64_t{80} << 30};

TEST(Advice, NumbersBetweenNodesAreTheFormulasBesideScalesNormsAndPadding) {
  for (const int64_t k : {1, 4}) {
    const Advice advice =
        make_advice(gpt_20b({"train.micro_batch=" + std::to_string(4 / k)}), kPaper);
    EXPECT_EQ(advice.micro_batches, k);
    const double m = 2.0 * static_cast<double>(advice.parameters), f = 47.0 / 48.0;
    const auto times = static_cast<double>(k);
    const std::vector<std::pair<std::string, double>> table = {
        {"ddp", 2 * f * m},
        {"zero1", 2 * f * m},
        {"zero2", (times + 1) * f * m},
        {"hsdp", 2 * f * m},
        {"hybrid", 2 * f * m},
        {"zero++", f * (m / 2 + times * m / 4)},
        {"hybrid, int8/int4", f * (m / 2 + m / 4)}};
    for (const auto& [name, bytes] : table) {
      const AdviceRow* row = advice.find(name);
      ASSERT_NE(row, nullptr) << name;
      // One scale of 4 bytes for 128 codes of half a byte is a sixteenth.
      const bool coded = name == "zero++" || name == "hybrid, int8/int4";
      EXPECT_GT(static_cast<double>(row->into_node), bytes) << name;
      EXPECT_LT(static_cast<double>(row->into_node), bytes * (coded ? 1.06 : 1.001)) << name;
    }
    // 3 K f M, but for the root and the last block, which stay between forward and backward.
    const auto zero3 = static_cast<double>(advice.find("zero3")->into_node);
    EXPECT_LT(zero3, 3 * times * f * m);
    EXPECT_GT(zero3, 0.97 * 3 * times * f * m);
  }
}

TEST(Advice, MemoryIsWhatThePlanOfEachPresetSays) {
  TrainConfig config = gpt_20b();
  const Advice advice = make_advice(config, kPaper);
  for (const char* preset : {"zero3", "hybrid", "zero++"}) {
    config = gpt_20b({std::string("zero.preset=") + preset, "launch.ranks_per_node=8"});
    const Plan plan = make_plan(config, {}, 384);
    const AdviceRow& row = *advice.find(preset);
    EXPECT_EQ(row.memory, plan.pool) << preset;
    EXPECT_EQ(row.replica, plan.replica) << preset;
    EXPECT_EQ(row.weights + row.replica + row.gradients + row.optimizer + row.passing + row.working,
              row.memory);
  }
  // A node keeps one copy of the weights, in 16 bits.
  EXPECT_NEAR(static_cast<double>(advice.find("zero++")->replica),
              2.0 * static_cast<double>(advice.parameters) / 8, 0.002 * 2 * 20.6e9 / 8);
  EXPECT_EQ(advice.find("zero3")->replica, 0);
}

TEST(Advice, TimeIsThatOfTheSlowestPartAndWhatNothingHides) {
  const TrainConfig config = gpt_20b({"train.micro_batch=1"});
  const auto row_of = [&](double node, double rank, double flops) {
    Cluster cluster = kPaper;
    cluster.node_bytes_per_s = node;
    cluster.rank_bytes_per_s = rank;
    cluster.flops = flops;
    return *make_advice(config, cluster).find("zero++");
  };
  const AdviceRow slow_nodes = row_of(1e9, 1e15, 1e18);
  EXPECT_EQ(slow_nodes.bound, Bound::kBetweenNodes);
  EXPECT_NEAR(slow_nodes.step_s, static_cast<double>(slow_nodes.into_node) / 1e9, 1e-6);
  EXPECT_EQ(slow_nodes.links_s, slow_nodes.step_s);
  const AdviceRow slow_ranks = row_of(1e15, 1e9, 1e18);
  EXPECT_EQ(slow_ranks.bound, Bound::kInsideNodes);
  EXPECT_NEAR(slow_ranks.step_s, static_cast<double>(slow_ranks.into_rank) / 1e9, 1e-6);
  const AdviceRow slow_compute = row_of(100e9 / 8, 600e9, 10e12);
  EXPECT_EQ(slow_compute.bound, Bound::kCompute);
  EXPECT_GT(slow_compute.edge_s, 0);
  EXPECT_LT(slow_compute.edge_s, 0.05 * slow_compute.step_s);
  Cluster cluster = kPaper;
  cluster.flops = 10e12;
  const double compute = make_advice(config, cluster).compute_s;
  EXPECT_NEAR(compute, 125e9 * 1536 * 2048 / (384 * 10e12), 0.01 * compute);
  EXPECT_DOUBLE_EQ(slow_compute.step_s, compute + slow_compute.edge_s);
  EXPECT_DOUBLE_EQ(slow_compute.tokens_per_s, 1536 * 2048 / slow_compute.step_s);
}

TEST(Advice, OnceAStepTrafficHidesBehindOneMicroBatchOnly) {
  // Between nodes hybrid sends nothing but once a step.
  const TrainConfig config = gpt_20b({"train.micro_batch=1"});
  Cluster cluster = kPaper;
  cluster.rank_bytes_per_s = 1e15;
  const Advice advice = make_advice(config, cluster);
  const AdviceRow& row = *advice.find("hybrid");
  const double once = static_cast<double>(row.into_node) / cluster.node_bytes_per_s;
  const double micro = advice.compute_s / 4;
  ASSERT_GT(once, micro + row.edge_s);
  EXPECT_NEAR(row.step_s, 3 * micro + once, 1e-3);
}

TEST(Advice, TakesTheFastestThatFitsAndLessMemoryAmongThoseThatAreAlike) {
  Advice advice{.cluster = kPaper,
                .rows = {{.name = "a", .memory = 5, .step_s = 1.0},
                         {.name = "b", .memory = 3, .step_s = 1.005},
                         {.name = "c", .memory = 1, .step_s = 1.2},
                         {.name = "d", .memory = 9, .fits = false, .step_s = 0.1}},
                .left_out = {}};
  EXPECT_EQ(advice.best()->name, "b");
  for (AdviceRow& row : advice.rows) row.fits = row.name == "c";
  EXPECT_EQ(advice.best()->name, "c");
  advice.rows[2].fits = false;
  EXPECT_EQ(advice.best(), nullptr);
}

TEST(Advice, TheTextNamesThePresetToTake) {
  const TrainConfig config = gpt_20b({"train.global_batch=384", "train.micro_batch=1"});
  const std::string text = advice_text(config, make_advice(config, kPaper));
  EXPECT_THAT(text, HasSubstr("20,554,567,680 parameters on 48 nodes of 8 ranks"));
  EXPECT_THAT(text, HasSubstr("100 Gbit/s into each node, 600 GB/s into each rank"));
  EXPECT_THAT(text, HasSubstr("does not fit"));
  EXPECT_THAT(text, HasSubstr("\nzero++ is the fastest that fits in 80.0 GiB: "));
  Cluster small = kPaper;
  small.memory = 1 << 20;
  EXPECT_THAT(advice_text(config, make_advice(config, small)),
              HasSubstr("\nNo preset fits in 1.00 MiB: zero3 needs least, "));
  Cluster single{.nodes = 1, .ranks_per_node = 1, .flops = 1e12, .memory = {}};
  EXPECT_THAT(advice_text(config, make_advice(config, single)),
              EndsWith("; there is nobody to send to.\n"));
}

TEST(Advice, HasARowForASectionOfOnesOwnAndLeavesOutWhatCannotBe) {
  const Advice own = make_advice(gpt_20b({"zero.replica=node"}), kPaper);
  ASSERT_NE(own.find("as configured"), nullptr);
  EXPECT_LT(own.find("as configured")->into_node, own.find("zero3")->into_node);
  EXPECT_EQ(make_advice(gpt_20b(), kPaper).find("as configured"), nullptr);
  const Advice exact = make_advice(gpt_20b({"precision.compute=f64"}), kPaper);
  EXPECT_EQ(exact.find("zero++"), nullptr);
  EXPECT_THAT(exact.left_out, testing::Contains(HasSubstr("zero++: ")));
  EXPECT_THROW(make_advice(gpt_20b({"train.micro_batch=3"}), kPaper), Error);
}

}  // namespace
}  // namespace zpp
