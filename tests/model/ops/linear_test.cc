#include "model/ops/linear.h"

#include <gtest/gtest.h>

#include "tests/model/grad_check.h"

namespace zpp::test {
namespace {

using Values = std::vector<Value>;
using Params = std::vector<Parameter*>;

TEST(LinearOp, HasTheGradientOfAProductWithABias) {
  check_op(
      {.inputs = {{2, 5, 7}},
       .parameters = {{3, 7}, {3}},
       .op = [](Tape&, const Values& x, const Params& w) { return linear(x[0], *w[0], w[1]); }});
}

TEST(LinearOp, WorksWithoutBiasOnARankTwoInput) {
  check_op({.inputs = {{6, 64}},
            .parameters = {{33, 64}},
            .op = [](Tape&, const Values& x, const Params& w) { return linear(x[0], *w[0]); }});
}

TEST(LinearOp, AddsTheGradientsOfTwoUsesOfOneMatrix) {
  check_op({.inputs = {{2, 3, 4}},
            .parameters = {{4, 4}},
            .op = [](Tape&, const Values& x, const Params& w) {
              return linear(linear(x[0], *w[0]), *w[0]);
            }});
}

TEST(LinearOp, KeepsLogitsInFloat32) {
  const OpCheck check = {.inputs = {{4, 16}},
                         .parameters = {{9, 16}},
                         .op = [](Tape& tape, const Values& x, const Params& w) {
                           const Value y = linear_f32(x[0], *w[0]);
                           EXPECT_EQ(y.dtype(), accumulator_of(x[0].dtype()));
                           EXPECT_TRUE(tape.recording());
                           return y;
                         }};
  check_op(check);
  // Rounding the result to bf16 would leave errors of about 1e-3.
  EXPECT_LT(
      relative_error(OpBench(check, DType::kBF16).run().y, OpBench(check, DType::kF64).run().y),
      1e-6);
}

TEST(LinearOp, MakesZeroGradientsFromAnEmptyBatch) {
  const OpCheck check = {
      .inputs = {{0, 4, 8}},
      .parameters = {{3, 8}, {3}},
      .op = [](Tape&, const Values& x, const Params& w) { return linear(x[0], *w[0], w[1]); }};
  const OpResult result = OpBench(check, DType::kF32).run();
  EXPECT_TRUE(result.y.empty());
  EXPECT_EQ(result.dw[0], std::vector<double>(24, 0.0));
  EXPECT_EQ(result.dw[1], std::vector<double>(3, 0.0));
}

TEST(LinearOp, SaysWhichParameterDoesNotFit) {
  const OpCheck check = {
      .inputs = {{2, 5, 7}},
      .parameters = {{3, 8}},
      .op = [](Tape&, const Values& x, const Params& w) { return linear(x[0], *w[0]); }};
  try {
    OpBench(check, DType::kF32).run();
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "linear: x is (2, 5, 7) but w wants 8 inputs [w0]");
  }
}

}  // namespace
}  // namespace zpp::test
