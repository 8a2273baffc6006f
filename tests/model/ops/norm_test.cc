#include "model/ops/norm.h"

#include <gtest/gtest.h>

#include "tests/model/grad_check.h"

namespace zpp::test {
namespace {

using Values = std::vector<Value>;
using Params = std::vector<Parameter*>;

TEST(NormOps, RmsNormHasItsGradient) {
  check_op(
      {.inputs = {{3, 5, 12}},
       .parameters = {{12}},
       .op = [](Tape&, const Values& x, const Params& w) { return rms_norm(x[0], *w[0], 1e-5f); }});
}

TEST(NormOps, LayerNormHasItsGradient) {
  check_op({.inputs = {{3, 5, 12}},
            .parameters = {{12}, {12}},
            .op = [](Tape&, const Values& x, const Params& w) {
              return layer_norm(x[0], *w[0], w[1], 1e-5f);
            }});
}

TEST(NormOps, LayerNormWorksWithoutBetaOnOddWidths) {
  check_op({.inputs = {{7, 37}},
            .parameters = {{37}},
            .op = [](Tape&, const Values& x, const Params& w) {
              return layer_norm(x[0], *w[0], nullptr, 1e-5f);
            }});
}

TEST(NormOps, SayWhichParameterDoesNotFit) {
  const OpCheck check = {
      .inputs = {{2, 5}}, .parameters = {{4}}, .op = [](Tape&, const Values& x, const Params& w) {
        return rms_norm(x[0], *w[0], 1e-5f);
      }};
  try {
    OpBench(check, DType::kF32).run();
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "rms_norm: x is (2, 5) but the parameter is (4) [w0]");
  }
}

}  // namespace
}  // namespace zpp::test
