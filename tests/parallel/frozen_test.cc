// Parameters that are never updated.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/parallel/tiny_run.h"

namespace zpp {
namespace {

const std::vector<std::string> kFrozen = {"blocks.1", "blocks.0.qkv.weight", "tokens"};

/// The kept weights of all units, one after the other, of a world of one.
std::vector<float> weights_of(Engine& engine) {
  std::vector<float> all;
  for (size_t i = 0; i < engine.parameters().units().size(); ++i) {
    const auto part = copy_to_host<float>(engine.compute(), engine.kept_weights(i));
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

TEST(Frozen, OnlyTheOthersAreTrained) {
  std::vector<float> before, after;
  run_tiny({.steps = 0, .frozen = kFrozen, .inspect = [&](Engine& e) { before = weights_of(e); }});
  int64_t first = 0, moved = 0;
  const auto compare = [&](Engine& engine) {
    after = weights_of(engine);
    for (const auto& unit : engine.parameters().units()) {
      for (const auto& p : unit->parameters()) {
        const auto begin = static_cast<std::ptrdiff_t>(first + p->offset());
        const auto n = static_cast<std::ptrdiff_t>(p->numel());
        const bool same =
            std::equal(after.begin() + begin, after.begin() + begin + n, before.begin() + begin);
        EXPECT_EQ(same, p->frozen()) << p->name();
        moved += same ? 0 : 1;
      }
      first += unit->flat_numel();
    }
  };
  run_tiny({.steps = 3, .frozen = kFrozen, .inspect = compare});
  EXPECT_GT(moved, 10);
}

TEST(Frozen, RanksTrainLikeOneProcess) {
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    const TinyRun single{.compute = compute, .steps = 10, .frozen = kFrozen};
    const TinyResult wanted = run_tiny(single);
    for (const char* preset : {"ddp", "zero1", "zero2", "zero3", "hsdp", "hybrid", "zero++"}) {
      TinyRun run = single;
      run.nested = {2, 4};
      run.preset = preset;
      const TinyResult found = run_tiny(run);
      const bool exact = compute == DType::kF32 && run.preset != "zero++";
      EXPECT_NEAR(found.losses.back(), wanted.losses.back(),
                  (exact ? 2e-5 : 0.02) * wanted.losses.back())
          << preset;
    }
  }
}

TEST(Frozen, UnitsHaveNeitherGradientsNorMomentsNorTraffic) {
  int64_t trained_bytes = 0, trained_grads = 0, sent = 0;
  const auto look = [&](Engine& engine) {
    if (engine.rank() != 0) return;
    const int64_t flat = engine.parameters().units()[2]->flat_numel();
    const bool frozen = engine.parameters().units()[2]->frozen();
    const CommStats stats = engine.comm_stats();
    const int64_t bytes = stats.sent_bytes.back();
    if (!frozen) {
      trained_bytes = engine.optimizer().moment_bytes();
      trained_grads = engine.grad_bytes();
      sent = bytes;
      return;
    }
    EXPECT_EQ(trained_bytes - engine.optimizer().moment_bytes(), 8 * flat / 2);
    EXPECT_EQ(trained_grads - engine.grad_bytes(), 4 * flat / 2);
    EXPECT_LE(bytes, sent - 3 * flat / 2 * 4) << "3 steps' gradients of the unit";
  };
  run_tiny({.nested = {2}, .steps = 3, .inspect = look});
  run_tiny({.nested = {2}, .steps = 3, .frozen = {"blocks.1"}, .inspect = look});
}

TEST(Frozen, NamesThatFitNothingAreRefused) {
  const auto error_of = [](const std::vector<std::string>& frozen) {
    try {
      run_tiny({.steps = 1, .frozen = frozen});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(error_of({"blocks.7"}), testing::HasSubstr("train.frozen: no parameter is called"));
  EXPECT_THAT(error_of({"tokens", "positions", "blocks", "norm"}),
              testing::HasSubstr("nothing is left to train"));
}

}  // namespace
}  // namespace zpp
