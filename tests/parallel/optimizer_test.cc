#include "parallel/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/rng.h"
#include "kernels/adamw.h"
#include "kernels/elementwise.h"
#include "model/nn/resident.h"

namespace zpp {
namespace {

/// A matrix, two vectors and another matrix, of sizes that need padding.
struct Fixture {
  explicit Fixture(DType dtype, OptimizerConfig config = {})
      : runtime({.device = {}, .threads = 2}),
        table(dtype),
        scope(table),
        matrix(scope.parameter("matrix", {5, 7}, {Init::kNormal, 1.0f})),
        gamma(scope.parameter("gamma", {9}, {Init::kOnes})),
        bias(scope.parameter("bias", {3}, {Init::kZeros})),
        head(scope.parameter("head", {4, 5}, {Init::kNormal, 1.0f})),
        hooks(table, runtime),
        optimizer(runtime, {{&table.root(), 0, table.root().weights(), table.root().grads()}},
                  config),
        guard(runtime.tensor({kernels::kGuardSize}, DType::kF64)) {
    optimizer.initialize(7);
    // A verdict of "apply as they are", first step.
    copy_from_host(runtime.compute(), std::vector<double>{1.0, 1.0, 0.0, 1.0}, guard.view());
    kernels::fill(runtime.compute(), table.root().grads(), 0.0);
  }
  std::vector<float> values(const Parameter& p) {
    Tensor wide = runtime.tensor(p.shape(), DType::kF32);
    kernels::copy(runtime.compute(), p.view(), {wide.view(), false});
    return copy_to_host<float>(runtime.compute(), wide.view());
  }

  Runtime runtime;
  ParameterTable table;
  Scope scope;
  Parameter &matrix, &gamma, &bias, &head;
  ResidentHooks hooks;
  Optimizer optimizer;
  Tensor guard;
};

TEST(Optimizer, StartsFromTheInitialWeightsOfEachName) {
  Fixture f(DType::kF32);
  const std::vector<float> matrix = f.values(f.matrix);
  for (size_t i = 0; i < matrix.size(); ++i) {
    EXPECT_EQ(matrix[i], normal_at({7, hash_name("matrix"), 0}, i));
  }
  EXPECT_EQ(f.values(f.gamma), std::vector<float>(9, 1.0f));
  EXPECT_EQ(f.values(f.bias), std::vector<float>(3, 0.0f));
}

/// The whole in parts of 64 elements, as ranks would hold it.
TEST(Optimizer, PartsOfAUnitMoveAsTheWholeDoes) {
  Fixture f(DType::kF32, {.weight_decay = 0.5});
  const View grads = f.table.root().grads();
  kernels::fill_normal(f.runtime.compute(), grads, 0.0f, 1.0f, {1, 2, 3});
  const int64_t flat = f.table.root().flat_numel();
  Tensor weights = f.runtime.tensor({flat}, DType::kF32);
  kernels::fill(f.runtime.compute(), weights.view(), -7.0);
  std::vector<OptimizerPart> parts;
  for (int64_t begin = 0; begin < flat; begin += 64) {
    parts.push_back({&f.table.root(), begin, weights.view().slice(0, begin, begin + 64),
                     grads.slice(0, begin, begin + 64)});
  }
  ASSERT_GE(parts.size(), 4u);
  Optimizer split(f.runtime, parts, {.weight_decay = 0.5});
  split.initialize(7);
  f.optimizer.apply(0, 0.1, f.guard.view());
  for (size_t i = 0; i < parts.size(); ++i) split.apply(i, 0.1, f.guard.view());
  EXPECT_EQ(copy_to_host<float>(f.runtime.compute(), weights.view()),
            copy_to_host<float>(f.runtime.compute(), f.table.root().weights()));
}

TEST(Optimizer, DecaysMatricesOnly) {
  Fixture f(DType::kF32, {.weight_decay = 0.5});
  const std::vector<float> matrix = f.values(f.matrix), head = f.values(f.head);
  f.optimizer.apply(0, 0.1, f.guard.view());  // gradients are zero: all that happens is decay
  const std::vector<float> matrix_after = f.values(f.matrix), head_after = f.values(f.head);
  for (size_t i = 0; i < matrix.size(); ++i) EXPECT_NEAR(matrix_after[i], 0.95f * matrix[i], 1e-6);
  for (size_t i = 0; i < head.size(); ++i) EXPECT_NEAR(head_after[i], 0.95f * head[i], 1e-6);
  EXPECT_EQ(f.values(f.gamma), std::vector<float>(9, 1.0f));
  EXPECT_EQ(f.values(f.bias), std::vector<float>(3, 0.0f));
}

TEST(Optimizer, TheFirstStepMovesEachWeightByTheLearningRateAgainstItsGradient) {
  Fixture f(DType::kF32, {.weight_decay = 0.0});
  const View grads = f.table.root().grads();
  kernels::fill(f.runtime.compute(), grads, -3.0);
  f.optimizer.apply(0, 0.01, f.guard.view());
  for (const float g : f.values(f.gamma)) EXPECT_NEAR(g, 1.01f, 1e-6);
  for (const float b : f.values(f.bias)) EXPECT_NEAR(b, 0.01f, 1e-6);
}

TEST(Optimizer, Bf16WeightsFollowAMasterThatRemembersSmallSteps) {
  Fixture f(DType::kBF16, {.weight_decay = 0.0});
  EXPECT_GT(f.optimizer.master_bytes(), 0);
  const View grads = f.table.root().grads();
  kernels::fill(f.runtime.compute(), grads, 1.0);
  // A hundredth of a percent of 1.0 is lost in bf16, a hundred of them are not.
  for (int i = 0; i < 100; ++i) f.optimizer.apply(0, 1e-4, f.guard.view());
  for (const float g : f.values(f.gamma)) EXPECT_LT(g, 0.999f);
}

TEST(Optimizer, WeightsInF32AreTheirOwnMaster) {
  EXPECT_EQ(Fixture(DType::kF32).optimizer.master_bytes(), 0);
  Fixture f(DType::kF32);
  EXPECT_EQ(f.optimizer.moment_bytes(), 2 * f.table.root().weights().bytes());
}

TEST(Optimizer, ASkippedStepChangesNothing) {
  Fixture f(DType::kF32);
  const std::vector<float> before = f.values(f.matrix);
  kernels::fill(f.runtime.compute(), f.table.root().grads(), 1.0);
  copy_from_host(f.runtime.compute(), std::vector<double>{1.0, 0.0, 1.0, 0.0}, f.guard.view());
  f.optimizer.apply(0, 0.1, f.guard.view());
  EXPECT_EQ(f.values(f.matrix), before);
}

}  // namespace
}  // namespace zpp
