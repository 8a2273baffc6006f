#include "model/ops/embedding.h"

#include <gtest/gtest.h>

#include "model/ops/linear.h"
#include "tests/model/grad_check.h"

namespace zpp::test {
namespace {

using Values = std::vector<Value>;
using Params = std::vector<Parameter*>;

const std::vector<int32_t> kTokens = {4, 0, 4, 2, 1, 6, 4, 0, 3, 3};  // (2, 5)

TEST(EmbeddingOps, EmbeddingGathersRowsAndScattersGradients) {
  check_op({.inputs = {},
            .parameters = {{7, 6}, {8, 6}},
            .op = [](Tape& tape, const Values&, const Params& w) {
              return embedding(tape, ints(tape, {2, 5}, kTokens), *w[0], w[1]);
            }});
}

TEST(EmbeddingOps, EmbeddingWorksWithoutPositions) {
  check_op(
      {.inputs = {}, .parameters = {{7, 6}}, .op = [](Tape& tape, const Values&, const Params& w) {
         return embedding(tape, ints(tape, {2, 5}, kTokens), *w[0]);
       }});
}

TEST(EmbeddingOps, PositionsStartAgainInEachDocument) {
  const OpCheck check = {
      .inputs = {},
      .parameters = {{7, 3}, {5, 3}},
      .op =
          [](Tape& tape, const Values&, const Params& w) {
            return embedding(tape, ints(tape, {1, 5}, {1, 2, 1, 2, 2}), *w[0], w[1]);
          },
      .doc_start = {0, 0, 2, 2, 2},
      .doc_shape = {1, 5}};
  check_op(check);
  const std::vector<double> y = OpBench(check, DType::kF32).run().y;
  EXPECT_EQ(std::vector<double>(y.begin(), y.begin() + 6),
            std::vector<double>(y.begin() + 6, y.begin() + 12));
}

TEST(EmbeddingOps, ATiedTableCollectsBothGradients) {
  check_op(
      {.inputs = {}, .parameters = {{7, 6}}, .op = [](Tape& tape, const Values&, const Params& w) {
         return linear(embedding(tape, ints(tape, {2, 5}, kTokens), *w[0]), *w[0]);
       }});
}

TEST(EmbeddingOps, ABatchLongerThanTheContextIsRefused) {
  const OpCheck check = {.inputs = {},
                         .parameters = {{7, 6}, {4, 6}},
                         .op = [](Tape& tape, const Values&, const Params& w) {
                           return embedding(tape, ints(tape, {2, 5}, kTokens), *w[0], w[1]);
                         }};
  EXPECT_THROW(OpBench(check, DType::kF32).run(), Error);
}

TEST(EmbeddingOps, LastPositionTakesTheLastTokenOfEachRow) {
  const OpCheck check = {
      .inputs = {{3, 4, 5}}, .parameters = {}, .op = [](Tape&, const Values& x, const Params&) {
        return last_position(x[0]);
      }};
  check_op(check);
  OpBench bench(check, DType::kF32);
  const std::vector<double> y = bench.run().y;
  for (size_t b = 0; b < 3; ++b) {
    for (size_t c = 0; c < 5; ++c) EXPECT_EQ(y[b * 5 + c], bench.x[0][(b * 4 + 3) * 5 + c]);
  }
}

}  // namespace
}  // namespace zpp::test
