#include "parallel/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/elementwise.h"
#include "parallel/session.h"
#include "tests/parallel/run_fixture.h"

namespace zpp {
namespace {

constexpr int64_t kContext = 16;

/// Samples of a text that counts up; `ignored` targets at the end of sample i are left out.
HostBatch batch(int64_t first, int64_t samples, const std::vector<int64_t>& ignored = {}) {
  HostBatch b;
  b.first_sample = first;
  b.samples = samples;
  b.length = kContext;
  for (int64_t s = first; s < first + samples; ++s) {
    const int64_t skip = ignored.empty() ? 0 : ignored[static_cast<size_t>(s)];
    for (int64_t t = 0; t < kContext; ++t) {
      b.tokens.push_back(static_cast<int32_t>((7 * s + t * t) % 257));
      const bool valid = t < kContext - skip;
      b.targets.push_back(valid ? static_cast<int32_t>((7 * s + (t + 1) * (t + 1)) % 257) : -1);
      b.valid += valid ? 1 : 0;
    }
  }
  return b;
}

class EngineTest : public RunTest {
 protected:
  std::unique_ptr<Engine> make(const std::vector<std::string>& changes = {}) {
    configs_.push_back(std::make_unique<TrainConfig>(config(changes)));
    runtimes_.push_back(
        std::make_unique<Runtime>(runtime_options(*configs_.back(), /*dry=*/false)));
    return make_engine(*runtimes_.back(), *configs_.back());
  }
  Runtime& runtime() { return *runtimes_.back(); }

  /// Losses and gradient norms of a few steps over eight samples, cut into micro-batches of
  /// `micro`.
  std::vector<double> train(Engine& engine, int64_t micro, const std::vector<int64_t>& ignored) {
    std::vector<double> out;
    for (int64_t step = 0; step < 4; ++step) {
      std::vector<HostBatch> batches;
      for (int64_t i = 0; i < 8; i += micro) batches.push_back(batch(i, micro, ignored));
      const StepStats stats = engine.train_step(step, 1e-2, batches);
      out.insert(out.end(), {stats.loss, stats.grad_norm});
    }
    return out;
  }

  std::vector<std::unique_ptr<TrainConfig>> configs_;
  std::vector<std::unique_ptr<Runtime>> runtimes_;
};

void expect_close(const std::vector<double>& a, const std::vector<double>& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_NEAR(a[i], b[i], tolerance * std::abs(b[i])) << "value " << i;
  }
}

/// Losses to f32 rounding; Adam makes that of the gradients larger.
void expect_same_training(const std::vector<double>& a, const std::vector<double>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); i += 2) {
    EXPECT_NEAR(a[i], b[i], 1e-6 * b[i]) << "loss of step " << i / 2;
    EXPECT_NEAR(a[i + 1], b[i + 1], 3e-5 * b[i + 1]) << "gradient norm of step " << i / 2;
  }
}

TEST_F(EngineTest, TheLossStartsAtThatOfAUniformGuessAndFalls) {
  const auto engine = make();
  const std::vector<double> seen = train(*engine, 8, {});
  EXPECT_NEAR(seen[0], std::log(257.0), 0.1);
  EXPECT_LT(seen[6], seen[0] - 0.1);
}

TEST_F(EngineTest, MicroBatchesEqualOneBatch) {
  const std::vector<double> whole = train(*make(), 8, {});
  expect_same_training(train(*make(), 2, {}), whole);
  expect_same_training(train(*make(), 1, {}), whole);
}

TEST_F(EngineTest, MicroBatchesEqualOneBatchWhenTokensAreMasked) {
  // A mean of the micro-batches' means would be off: their numbers of targets differ a lot.
  const std::vector<int64_t> ignored = {0, 15, 3, 16, 16, 8, 0, 12};
  const std::vector<double> whole = train(*make(), 8, ignored);
  expect_same_training(train(*make(), 2, ignored), whole);
  expect_same_training(train(*make(), 1, ignored), whole);
}

TEST_F(EngineTest, DropoutDoesNotDependOnTheMicroBatch) {
  const std::vector<std::string> dropout = {"model.dropout=0.3"};
  const std::vector<double> whole = train(*make(dropout), 8, {});
  expect_same_training(train(*make(dropout), 2, {}), whole);
  EXPECT_GT(std::abs(whole[0] - train(*make(), 8, {})[0]), 1e-6) << "dropout does nothing";
}

TEST_F(EngineTest, RecomputationChangesNoBit) {
  EXPECT_EQ(train(*make({"train.recompute=unit", "model.dropout=0.1"}), 4, {}),
            train(*make({"model.dropout=0.1"}), 4, {}));
}

TEST_F(EngineTest, TwoRunsGiveTheSameBits) {
  EXPECT_EQ(train(*make(), 4, {}), train(*make(), 4, {}));
}

TEST_F(EngineTest, Bf16WithMasterWeightsFollowsF32) {
  const std::vector<double> exact = train(*make(), 8, {});
  const std::vector<double> rounded = train(*make({"precision.compute=bf16"}), 8, {});
  for (size_t i = 0; i < exact.size(); i += 2) EXPECT_NEAR(rounded[i], exact[i], 0.03);
}

TEST_F(EngineTest, F64AgreesWithF32) {
  expect_close(train(*make({"precision.compute=f64"}), 8, {}), train(*make(), 8, {}), 1e-3);
}

TEST_F(EngineTest, TheGradientIsClippedToTheGivenNorm) {
  const auto engine = make({"train.grad_clip=0.01"});
  const StepStats stats = engine->train_step(0, 1e-2, std::vector{batch(0, 8)});
  EXPECT_GT(stats.grad_norm, 0.01);
  EXPECT_EQ(stats.grad_norm_clipped, 0.01);
  const auto free = make({"train.grad_clip=0"});
  const StepStats unclipped = free->train_step(0, 1e-2, std::vector{batch(0, 8)});
  EXPECT_EQ(unclipped.grad_norm, unclipped.grad_norm_clipped);
}

TEST_F(EngineTest, AStepThatIsNotFiniteChangesNothingAndNamesTheTensor) {
  const auto engine = make();
  Parameter& bad = *engine->parameters().find("blocks.1.qkv.weight");
  Parameter& good = *engine->parameters().find("blocks.0.qkv.weight");
  const std::vector<float> before = copy_to_host<float>(runtime().compute(), good.view());
  kernels::fill(runtime().compute(), bad.view().reshape({bad.numel()}).slice(0, 5, 6),
                std::numeric_limits<double>::quiet_NaN());
  const StepStats stats = engine->train_step(0, 1e-2, std::vector{batch(0, 8)});
  EXPECT_TRUE(stats.skipped);
  EXPECT_EQ(copy_to_host<float>(runtime().compute(), good.view()), before);
  EXPECT_THAT(engine->describe_nonfinite(), testing::HasSubstr("weights of " + bad.name()));
}

TEST_F(EngineTest, AStepWithoutTargetsIsRefused) {
  const auto engine = make();
  EXPECT_THROW(engine->train_step(0, 1e-2, std::vector{batch(0, 1, {kContext})}), Error);
}

TEST_F(EngineTest, EvaluationIsTheMeanOverAllTargets) {
  const auto engine = make();
  const std::vector<int64_t> ignored = {0, 15, 3, 10, 0, 0, 0, 0};
  const double whole = engine->evaluate(std::vector{batch(0, 8, ignored)});
  const double parts = engine->evaluate(
      std::vector{batch(0, 1, ignored), batch(1, 3, ignored), batch(4, 4, ignored)});
  EXPECT_NEAR(whole, parts, 1e-6);
  EXPECT_NEAR(whole, std::log(257.0), 0.1);
  EXPECT_EQ(engine->evaluate({}), 0.0);
}

TEST_F(EngineTest, LogitsDoNotSeeWhatIsBeforeTheText) {
  const auto engine = make();
  const std::vector<int32_t> text = {5, 6, 7, 8};
  const std::vector<double> plain = engine->next_logits(text, 4);
  std::vector<int32_t> padded(12, 99);
  padded.insert(padded.end(), text.begin(), text.end());
  expect_close(engine->next_logits(padded, 4), plain, 1e-4);
  EXPECT_EQ(plain.size(), 257u);
}

TEST_F(EngineTest, NothingIsAllocatedAfterTheFirstSteps) {
  const auto engine = make();
  train(*engine, 2, {});
  const int64_t held = runtime().pool().stats().held_bytes;
  train(*engine, 2, {});
  EXPECT_EQ(runtime().pool().stats().held_bytes, held);
}

}  // namespace
}  // namespace zpp
