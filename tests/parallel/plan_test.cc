#include "parallel/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "core/log.h"
#include "parallel/trainer.h"
#include "tests/comm/local_ranks.h"
#include "tests/parallel/run_fixture.h"

namespace zpp {
namespace {

TrainConfig shipped(const std::string& name) {
  const std::string file = "configs/" + name + ".json";
  return parse_train_config(read_file(file), file);
}

TEST(Plan, CountsThePublishedParametersOfTheShippedConfigurationsQuickly) {
  const std::vector<std::pair<std::string, int64_t>> published = {
      {"gpt2-124m", 124439808},   {"gpt2-350m", 354823168}, {"gpt2-774m", 774030080},
      {"gpt2-1558m", 1557611200}, {"gpt-20b", 20554567680}, {"llama-7b", 6738415616}};
  for (const auto& [name, parameters] : published) {
    const auto begin = std::chrono::steady_clock::now();
    const TrainConfig config = shipped(name);
    const Plan plan = make_plan(config, {});
    EXPECT_EQ(plan.parameters, parameters) << name;
    EXPECT_THAT(plan_text(config, plan), testing::HasSubstr("parameters"));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5)) << name;
  }
}

TEST(Plan, The18BModelHas18BillionParametersAndEighteenBytesOfStateForEach) {
  const Plan plan = make_plan(shipped("gpt-18b"), {});
  EXPECT_NEAR(static_cast<double>(plan.parameters), 18.43e9, 0.01e9);
  const double state =
      static_cast<double>(plan.weights + plan.master + plan.moments + plan.gradients);
  EXPECT_NEAR(state / static_cast<double>(plan.parameters), 18.0, 0.01);  // bf16 weights, f32 rest
}

class PlanRun : public RunTest {
 protected:
  /// What the pool of a real run holds at its end (it never shrinks).
  int64_t held_by_run(const TrainConfig& config) {
    const RunDirectory run = prepare_run_directory(config);
    const std::unique_ptr<Log> log = null_log();
    train(config, open_train_data(config), run, *log, {});
    return last_peak(run);
  }
  static int64_t last_peak(const RunDirectory& run) {
    const std::string metrics = read_file(run.metrics_file());
    const size_t at = metrics.rfind("\"peak_bytes\":");
    return std::stoll(metrics.substr(at + 13));
  }
};

TEST_F(PlanRun, ThePoolOfARealRunHoldsExactlyWhatThePlanSays) {
  const std::vector<std::vector<std::string>> variants = {
      {},
      {"precision.compute=bf16", "train.micro_batch=1"},
      {"train.recompute=unit", "train.global_batch=6", "train.micro_batch=2"},
      {"train.eval_every=0", "sample.tokens=0"},
      {"model.width=96", "model.context=48", "model.heads=3", "train.steps=5"}};
  for (const auto& changes : variants) {
    const TrainConfig c = config(changes);
    EXPECT_EQ(make_plan(c, {}).pool, held_by_run(c)) << testing::PrintToString(changes);
  }
}

TEST_F(PlanRun, ThePoolOfARankHoldsExactlyWhatThePlanSays) {
  for (const char* preset : {"zero3", "zero2", "zero1", "hybrid", "ddp", "zero++"}) {
    const TrainConfig c =
        config({"train.micro_batch=1", "train.global_batch=8", "run.threads=1", "launch.nodes=2",
                "model.width=96", "model.heads=3", "precision.compute=bf16", "train.steps=4",
                std::string("zero.preset=") + preset});
    const TrainData data = open_train_data(c);
    const RunDirectory run = prepare_run_directory(c);
    run_ranks(topology_of({2, 4}), {}, [&](LocalRank& rank) {
      RunDirectory directory = run;
      directory.rank = rank.rank;
      const std::unique_ptr<Log> log = null_log();
      train(c, data, directory, *log, {}, &rank.mesh);
    });
    EXPECT_EQ(make_plan(c, {}, 4).pool, last_peak(run)) << preset;
  }
}

TEST(Plan, A20BModelOn384RanksNeedsWhatTheTableSays) {
  TrainConfig config = shipped("gpt-20b");
  const std::vector<std::pair<std::string, double>> bytes_per_parameter = {
      {"zero3", 18.0 / 384},
      {"hybrid", 6.0 / 8 + 12.0 / 384},
      {"hsdp", 18.0 / 8},
      {"zero2", 2 + 16.0 / 384},
      {"zero1", 6 + 12.0 / 384}};
  for (const auto& [preset, bytes] : bytes_per_parameter) {
    config.zero.preset = preset;
    config.zero.shard = {};
    const Plan plan = make_plan(config, {}, 384);
    const double found =
        static_cast<double>(plan.weights + plan.master + plan.moments + plan.gradients);
    EXPECT_NEAR(found / static_cast<double>(plan.parameters), bytes, 0.001 * bytes) << preset;
    EXPECT_GT(plan.passing, preset == "zero1" ? 0 : 100 << 20);
    const std::string text = plan_text(config, plan);
    EXPECT_THAT(text, testing::HasSubstr("memory of each of 384 ranks in groups of 8, " + preset));
    EXPECT_THAT(text, testing::HasSubstr("micro-batches: 1"));
  }
}

TEST(Plan, ABatchThatDoesNotFitTheRanksIsRefused) {
  EXPECT_THROW(make_plan(shipped("gpt-20b"), {}, 1000), Error);
}

TEST_F(PlanRun, KindsAddUpAndWorkIsCounted) {
  const TrainConfig c = config({"precision.compute=bf16"});
  const TrainData data = open_train_data(c);
  const Plan plan = make_plan(c, data.facts);
  EXPECT_EQ(plan.weights + plan.master + plan.moments + plan.gradients + plan.working, plan.pool);
  EXPECT_GT(plan.working, 0);
  EXPECT_EQ(plan.master, 2 * plan.weights);
  EXPECT_EQ(plan.tokens_per_step, 4 * 16);
  EXPECT_NEAR(*plan.steps_per_epoch, 6000 / 16 / 4, 2);
  EXPECT_GT(plan.mapped, 6000);
  EXPECT_EQ(plan.total_flops(), plan.flops_per_token * 20 * 64);
  const std::string text = plan_text(c, plan);
  EXPECT_THAT(text, testing::HasSubstr("blocks.0 to blocks.1: 2 times"));
  EXPECT_THAT(plan_text(c, make_plan(c, {})), testing::HasSubstr("data files are not there"));
}

TEST_F(PlanRun, RecomputationAndSmallerMicroBatchesSaveWorkingMemory) {
  const std::vector<std::string> large = {"model.context=256", "model.width=128", "model.layers=6"};
  const auto working = [&](std::vector<std::string> changes) {
    changes.insert(changes.end(), large.begin(), large.end());
    return make_plan(config(changes), {}).working;
  };
  const int64_t whole = working({"train.global_batch=64", "train.micro_batch=64"});
  EXPECT_LT(working({"train.global_batch=64", "train.micro_batch=8"}), whole / 3);
  EXPECT_LT(working({"train.global_batch=64", "train.micro_batch=64", "train.recompute=unit"}),
            whole / 2);
}

TEST_F(PlanRun, ARunThatDoesNotFitIsSaid) {
  const TrainConfig c = config();
  Plan plan = make_plan(c, {});
  plan.available = plan.total() - (10 << 20);
  EXPECT_THAT(plan_text(c, plan), testing::HasSubstr("10.0 MiB less than the run would need"));
  plan.available = plan.total();
  EXPECT_THAT(plan_text(c, plan), testing::Not(testing::HasSubstr("less than")));
}

TEST(AvailableMemory, IsKnownOnLinux) {
  const std::optional<int64_t> bytes = available_memory();
  ASSERT_TRUE(bytes);
  EXPECT_GT(*bytes, 10 << 20);
}

}  // namespace
}  // namespace zpp
