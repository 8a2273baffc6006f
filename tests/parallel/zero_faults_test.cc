// What goes wrong on one of several ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <map>
#include <mutex>
#include <thread>

#include "kernels/elementwise.h"
#include "tests/parallel/tiny_run.h"
#include "tests/parallel/toy_model.h"

namespace zpp {
namespace {

using testing::HasSubstr;

std::vector<std::optional<Error>> run_two(const std::function<void(LocalRank&)>& fn) {
  LocalRanksOptions options;
  options.deadline = Millis(2000);
  return run_ranks_to_errors(topology_of({2}), options, fn);
}

TEST(ZeroFaults, AnotherOrderOfUnitsIsToldOnceAndGivesTheSameLosses) {
  const auto train = [](ToyRank& toy) {
    std::vector<double> losses;
    for (int64_t step = 0; step < 8; ++step) {
      if (step == 3) toy.order = {2, 0, 1};
      if (step == 5) toy.order = {2, 1, 1, 0};  // one of them twice
      losses.push_back(toy.step(step, 4 / toy.engine->world()));
    }
    return losses;
  };
  Runtime runtime({.device = {}, .threads = 1});
  ToyRank single(runtime, nullptr);
  const std::vector<double> wanted = train(single);
  run_ranks(topology_of({2}), {}, [&](LocalRank& rank) {
    ToyRank toy(rank.runtime, &rank.mesh);
    const std::vector<double> found = train(toy);
    for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(found[i], wanted[i], 2e-5 * wanted[i]);
    ASSERT_EQ(toy.warnings.size(), 1u);
    EXPECT_THAT(toy.warnings[0], HasSubstr("unit layers.2 runs where unit layers.0 ran before"));
  });
}

/// When tasks of a stream began and ended, by name.
class TaskTimes final : public TaskObserver {
 public:
  void task_ran(const TaskRecord& task) noexcept override {
    const auto [at, is_first] = begin_.try_emplace(std::string(task.name), task.begin);
    end_[at->first] = task.end;
  }
  std::chrono::steady_clock::time_point first_begin(const std::string& name) const {
    return begin_.at(name);
  }
  std::chrono::steady_clock::time_point last_end(const std::string& name) const {
    return end_.at(name);
  }

 private:
  std::map<std::string, std::chrono::steady_clock::time_point> begin_, end_;
};

TEST(ZeroFaults, WeightsThatWereFetchedInVainHaveBeenReadBeforeTheUpdateWritesThem) {
  run_ranks(topology_of({2}), {}, [](LocalRank& rank) {
    TaskTimes computing, gathering;
    ToyRank toy(rank.runtime, &rank.mesh);
    toy.step(0);
    // The next step fetches unit 1, slowly, but ends without it.
    toy.order = {0};
    toy.before_layers = [&rank] {
      rank.mesh.weights.stream().host(
          "pause", [] { std::this_thread::sleep_for(std::chrono::milliseconds(100)); });
    };
    rank.runtime.compute().observe(&computing);
    rank.mesh.weights.stream().observe(&gathering);
    toy.step(1);
    for (Stream* stream : {&rank.runtime.compute(), &rank.mesh.weights.stream()}) {
      stream->observe(nullptr);
      stream->synchronize();
    }
    EXPECT_GT(gathering.last_end("all-gather"), gathering.last_end("pause"));
    EXPECT_GT(computing.first_begin("adamw"), gathering.last_end("all-gather"));
  });
}

TEST(ZeroFaults, ARankThatRunsOtherUnitsOfTheSameSizeIsFoundInTheNextStep) {
  const auto errors = run_two([](LocalRank& rank) {
    ToyRank toy(rank.runtime, &rank.mesh);
    if (rank.rank == 1) toy.order = {0, 2, 1};
    for (int64_t step = 0; step < 3; ++step) toy.step(step);
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_THAT(error->what(), HasSubstr("rank 1 has run other units"));
  }
}

TEST(ZeroFaults, ARankThatSkipsAUnitEndsAllByTheDeadlineNamingTheOperation) {
  const auto errors = run_two([](LocalRank& rank) {
    ToyRank toy(rank.runtime, &rank.mesh);
    if (rank.rank == 1) toy.order = {0, 2};
    for (int64_t step = 0; step < 3; ++step) toy.step(step);
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_THAT(error->what(), HasSubstr("rank"));
    EXPECT_THAT(error->what(), testing::ContainsRegex("gather|reduce"));
  }
}

TEST(ZeroFaults, RanksWithDifferentModelsDoNotStart) {
  const auto errors = run_two([](LocalRank& rank) {
    TinyRun run;
    run.model = rank.rank == 0 ? "gpt" : "llama";
    make_tiny_engine(rank.runtime, run, &rank.mesh);
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_THAT(error->what(), testing::ContainsRegex("rank 1 has a model|aborted"));
  }
}

TEST(ZeroFaults, ARankThatThrowsEndsTheOthersWithItsReason) {
  const auto errors = run_two([](LocalRank& rank) {
    ToyRank toy(rank.runtime, &rank.mesh);
    toy.step(0);
    if (rank.rank == 1)
      rank.runtime.compute().host("fault", [] { throw Error(Code::kIo, "the disk is on fire"); });
    for (int64_t step = 1; step < 3; ++step) toy.step(step);
  });
  ASSERT_TRUE(errors[0]);
  ASSERT_TRUE(errors[1]);
  EXPECT_THAT(errors[0]->what(), HasSubstr("the disk is on fire"));
  EXPECT_EQ(errors[0]->code(), Code::kPeerLost);
  EXPECT_EQ(errors[1]->code(), Code::kIo);
}

TEST(ZeroFaults, ANanOnOneRankSkipsTheStepOnAllAndIsNamed) {
  for (const char* preset : {"zero3", "zero1", "hybrid"}) {
    run_tiny({.nested = {2, 4}, .preset = preset, .steps = 2, .inspect = [&](Engine& engine) {
                const std::vector<float> before =
                    copy_to_host<float>(engine.compute(), engine.kept_weights(2));
                std::vector<HostBatch> batches = {tiny_batch(engine.rank(), 1, false)};
                const Range range = engine.hooks().kept_range(1);
                const Parameter& p = *engine.parameters().find("blocks.0.qkv.weight");
                const int64_t at = p.offset() + 5;
                const bool mine = range.begin <= at && at < range.end;
                engine.change_weights(1, [&](const View& kept) {
                  if (!mine || engine.rank() >= 2) return;
                  kernels::fill(engine.compute(),
                                kept.slice(0, at - range.begin, at - range.begin + 1),
                                std::numeric_limits<double>::quiet_NaN());
                });
                const StepStats stats = engine.train_step(9, 1e-2, batches);
                EXPECT_TRUE(stats.skipped) << preset;
                EXPECT_EQ(copy_to_host<float>(engine.compute(), engine.kept_weights(2)), before);
                EXPECT_THAT(engine.describe_nonfinite(),
                            HasSubstr("the weights of blocks.0.qkv.weight"));
              }});
  }
}

TEST(ZeroFaults, AWishToStopOfOneRankIsHeardByAll) {
  run_tiny({.nested = {3}, .steps = 1, .inspect = [](Engine& engine) {
              const std::vector<HostBatch> batches = {tiny_batch(engine.rank(), 1, false)};
              EXPECT_FALSE(engine.train_step(1, 1e-3, batches, false).stop);
              EXPECT_TRUE(engine.train_step(2, 1e-3, batches, engine.rank() == 1).stop);
              EXPECT_FALSE(engine.any_rank(false));
              EXPECT_TRUE(engine.any_rank(engine.rank() == 2));
            }});
}

TEST(ZeroFaults, ParametersWithFewerElementsThanRanksAreTrained) {
  // Norms and biases of 16 elements on 8 ranks: some hold nothing but padding.
  const TinyResult wanted = run_tiny({.steps = 5});
  const TinyResult found = run_tiny({.nested = {8}, .steps = 5});
  for (size_t i = 0; i < wanted.losses.size(); ++i) {
    EXPECT_NEAR(found.losses[i], wanted.losses[i], 2e-5 * wanted.losses[i]);
  }
}

}  // namespace
}  // namespace zpp
