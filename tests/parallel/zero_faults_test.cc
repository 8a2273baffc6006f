// What goes wrong on one of several ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <mutex>
#include <set>

#include "kernels/elementwise.h"
#include "model/modeling.h"
#include "tests/parallel/tiny_run.h"

namespace zpp {
namespace {

using testing::HasSubstr;

class Layer final : public Unit {
 public:
  Layer(const Scope& s, int64_t width)
      : Unit(s), weight_(s.parameter("weight", {width, width}, {Init::kNormal, 0.1f})) {}

 protected:
  Value forward(const Value& x) override { return add(x, linear(x, weight_)); }

 private:
  Parameter& weight_;
};

/// Runs its layers in the order that the test wants.
class Toy final : public Model {
 public:
  Toy(const Scope& s, const std::vector<int>& order)
      : Model(s), order_(order), tokens_(s.parameter("tokens", {kTinyVocab, 16})) {
    for (int64_t i = 0; i < 3; ++i) {
      layers_.push_back(std::make_unique<Layer>(s / "layers" / i, 16));
    }
  }
  Value loss(Tape& tape, const Batch& batch) override {
    return linear_cross_entropy(hidden(tape, batch), tokens_, batch);
  }
  Value logits(Tape& tape, const Batch& batch) override {
    return linear_f32(last_position(hidden(tape, batch)), tokens_);
  }
  double flops_per_token() const override { return 1; }

 private:
  Value hidden(Tape& tape, const Batch& batch) {
    Value x = embedding(tape, batch.tokens, tokens_);
    for (const int i : order_) x = (*layers_[static_cast<size_t>(i)])(x);
    return x;
  }
  const std::vector<int>& order_;
  Parameter& tokens_;
  std::vector<std::unique_ptr<Layer>> layers_;
};

struct ToyRank {
  std::vector<int> order = {0, 1, 2};
  std::vector<std::string> warnings;
  std::unique_ptr<Engine> engine;

  ToyRank(Runtime& runtime, const Mesh* mesh) {
    EngineOptions options{.optimizer = {.lr = 1e-2}};
    options.warn = [this](const std::string& text) { warnings.push_back(text); };
    engine = std::make_unique<Engine>(
        runtime, options, [this](const Scope& s) { return std::make_unique<Toy>(s, order); }, mesh);
  }
  double step(int64_t step, int64_t samples = 2) {
    const int64_t first = (step * engine->world() + engine->rank()) * samples;
    return engine->train_step(step, 1e-2, std::vector{tiny_batch(first, samples, true)}).loss;
  }
};

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
                if (mine && engine.rank() < 2) {
                  kernels::fill(
                      engine.compute(),
                      engine.kept_weights(1).slice(0, at - range.begin, at - range.begin + 1),
                      std::numeric_limits<double>::quiet_NaN());
                }
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
