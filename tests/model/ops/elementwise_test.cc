#include "model/ops/elementwise.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/model/grad_check.h"

namespace zpp::test {
namespace {

using Values = std::vector<Value>;
using Params = std::vector<Parameter*>;

TEST(ElementwiseOps, GeluHasItsGradientInBothForms) {
  for (const Activation kind : {Activation::kGeluTanh, Activation::kGeluErf}) {
    check_op({.inputs = {{3, 5, 11}},
              .parameters = {},
              .op = [kind](Tape&, const Values& x, const Params&) { return gelu(x[0], kind); }});
  }
}

TEST(ElementwiseOps, SwigluHasItsGradient) {
  check_op({.inputs = {{3, 5, 14}},
            .parameters = {},
            .op = [](Tape&, const Values& x, const Params&) { return swiglu(x[0]); }});
}

TEST(ElementwiseOps, ActivationsOfConstantsHaveNoGradientToWrite) {
  const OpCheck check = {.inputs = {{3, 4}, {3, 8}},
                         .parameters = {},
                         .op = [](Tape& tape, const Values& x, const Params&) {
                           const Value a =
                               gelu(tape.constant(x[0].tensor()), Activation::kGeluTanh);
                           return add(x[0], add(a, swiglu(tape.constant(x[1].tensor()))));
                         }};
  const OpResult result = OpBench(check, DType::kF32).run();
  EXPECT_EQ(result.dx[0], OpBench::dy(12));
  EXPECT_EQ(result.dx[1], std::vector<double>(24, 0.0));
}

TEST(ElementwiseOps, AddPassesItsGradientToBoth) {
  check_op({.inputs = {{3, 7}, {3, 7}},
            .parameters = {},
            .op = [](Tape&, const Values& x, const Params&) { return add(x[0], x[1]); }});
}

TEST(ElementwiseOps, AddCountsAValueAddedToItselfTwice) {
  check_op({.inputs = {{3, 7}}, .parameters = {}, .op = [](Tape&, const Values& x, const Params&) {
              return add(x[0], x[0]);
            }});
}

// The sum's gradient is shared by both branches; the second writer must not change what the first
// still reads.
TEST(ElementwiseOps, SharedGradientsAreCopiedBeforeTheyAreAddedTo) {
  check_op({.inputs = {{3, 8}}, .parameters = {}, .op = [](Tape&, const Values& x, const Params&) {
              const Value a = gelu(x[0], Activation::kGeluTanh);
              const Value sum = add(a, gelu(x[0], Activation::kGeluErf));
              return add(gelu(sum, Activation::kGeluTanh), add(sum, a));
            }});
}

TEST(ElementwiseOps, AddReusesTheMemoryOfATemporaryOnly) {
  const OpCheck check = {
      .inputs = {{3, 8}}, .parameters = {}, .op = [](Tape&, const Values& x, const Params&) {
        Value h = gelu(x[0], Activation::kGeluTanh);
        const void* held = h.view().data;
        const Value kept = add(x[0], h);
        EXPECT_NE(kept.view().data, held);
        EXPECT_NE(kept.view().data, x[0].view().data);
        const Value reused = add(kept, std::move(h));
        EXPECT_EQ(reused.view().data, held);
        return reused;
      }};
  OpBench(check, DType::kF32).run();
}

TEST(ElementwiseOps, AddRefusesOtherShapes) {
  const OpCheck check = {
      .inputs = {{3, 8}, {3, 7}},
      .parameters = {},
      .op = [](Tape&, const Values& x, const Params&) { return add(x[0], x[1]); }};
  EXPECT_THROW(OpBench(check, DType::kF32).run(), Error);
}

TEST(ElementwiseOps, DropoutKeepsItsMaskForTheGradient) {
  check_op({.inputs = {{4, 3, 5}},
            .parameters = {},
            .op = [](Tape&, const Values& x, const Params&) { return dropout(x[0], 0.3); },
            .options = {.seed = 3, .step = 9, .samples = 4}});
}

TEST(ElementwiseOps, DropoutDropsAboutPAndScalesTheRest) {
  OpCheck check = {.inputs = {{4, 2500}},
                   .parameters = {},
                   .op = [](Tape&, const Values& x, const Params&) { return dropout(x[0], 0.25); },
                   .options = {.seed = 3, .samples = 4}};
  OpBench bench(check, DType::kF32);
  std::fill(bench.x[0].begin(), bench.x[0].end(), 3.0);
  const std::vector<double> y = bench.run().y;
  const auto dropped = std::count(y.begin(), y.end(), 0.0);
  EXPECT_NEAR(static_cast<double>(dropped) / 10000.0, 0.25, 0.02);
  EXPECT_EQ(dropped + std::count(y.begin(), y.end(), 4.0), 10000);
}

TEST(ElementwiseOps, DropoutIsTheIdentityInEvaluation) {
  const OpCheck check = {
      .inputs = {{4, 6}}, .parameters = {}, .op = [](Tape&, const Values& x, const Params&) {
        return dropout(x[0], 0.5);
      }};
  OpBench bench(check, DType::kF32);
  EXPECT_EQ(bench.evaluate(), bench.x[0]);
}

TEST(ElementwiseOps, DropoutDoesNotDependOnHowABatchIsCut) {
  const auto op = [](Tape&, const Values& x, const Params&) {
    return dropout(dropout(x[0], 0.5), 0.5);
  };
  const auto run = [&](int64_t first, int64_t samples) {
    const OpCheck check = {
        .inputs = {{samples, 3, 5}},
        .parameters = {},
        .op = op,
        .options = {.seed = 3, .step = 2, .first_sample = first, .samples = samples}};
    OpBench bench(check, DType::kF32);
    std::fill(bench.x[0].begin(), bench.x[0].end(), 1.0);
    return bench.run().y;
  };
  const std::vector<double> whole = run(0, 5);
  std::vector<double> parts = run(0, 2);
  for (double v : run(2, 3)) parts.push_back(v);
  EXPECT_EQ(parts, whole);
  EXPECT_NE(run(5, 5), whole) << "other samples should have other masks";
}

TEST(ElementwiseOps, DropoutChangesWithStepAndPosition) {
  std::vector<std::vector<double>> seen;
  for (const uint64_t step : {1, 2}) {
    const OpCheck check = {
        .inputs = {{2, 64}},
        .parameters = {},
        .op = [](Tape&, const Values& x, const Params&) { return dropout(x[0], 0.5); },
        .options = {.seed = 3, .step = step, .samples = 2}};
    seen.push_back(OpBench(check, DType::kF32).run().y);
  }
  EXPECT_NE(seen[0], seen[1]);
}

}  // namespace
}  // namespace zpp::test
