#include "model/ops/cross_entropy.h"

#include <gtest/gtest.h>

#include <cmath>

#include "model/ops/linear.h"
#include "tests/model/grad_check.h"

namespace zpp::test {
namespace {

using Values = std::vector<Value>;
using Params = std::vector<Parameter*>;

Batch batch_of(const Tape& tape, const Shape& shape, const std::vector<int32_t>& targets) {
  Batch batch;
  batch.targets = ints(tape, shape, targets);
  for (int32_t t : targets) batch.valid += t >= 0 ? 1 : 0;
  return batch;
}

const std::vector<int32_t> kTargets = {3, -1, 0, 8, 8, 5, -1, 1};  // (2, 4), of 9

TEST(CrossEntropyOps, StoredLogitsHaveTheirGradient) {
  check_op({.inputs = {{2, 4, 9}},
            .parameters = {},
            .op = [](Tape& tape, const Values& x, const Params&) {
              return cross_entropy(x[0], batch_of(tape, {2, 4}, kTargets));
            }});
}

TEST(CrossEntropyOps, ChunkedLogitsHaveTheirGradient) {
  check_op({.inputs = {{2, 4, 6}},
            .parameters = {{9, 6}},
            .op = [](Tape& tape, const Values& x, const Params& w) {
              return linear_cross_entropy(x[0], *w[0], batch_of(tape, {2, 4}, kTargets));
            }});
}

OpCheck many_rows(bool chunked, int64_t rows, int64_t vocab) {
  return {.inputs = {{1, rows, 8}},
          .parameters = {{vocab, 8}},
          .op = [=](Tape& tape, const Values& x, const Params& w) {
            std::vector<int32_t> targets;
            for (int64_t i = 0; i < rows; ++i) {
              targets.push_back(i % 7 == 3 ? -1 : static_cast<int32_t>(i * 31 % vocab));
            }
            const Batch batch = batch_of(tape, {1, rows}, targets);
            return chunked ? linear_cross_entropy(x[0], *w[0], batch)
                           : cross_entropy(linear(x[0], *w[0]), batch);
          }};
}

TEST(CrossEntropyOps, ManyChunksGiveTheSameAsStoredLogits) {
  constexpr int64_t kVocab = 40000, kRows = 600;
  ASSERT_LT(logits_chunk_rows(kVocab) * 2, kRows) << "the test should span several chunks";
  const OpCheck chunked = many_rows(true, kRows, kVocab), stored = many_rows(false, kRows, kVocab);
  OpBench a(chunked, DType::kF32), b(stored, DType::kF32);
  const OpResult one = a.run(), other = b.run();
  EXPECT_LT(relative_error(one.y, other.y), 1e-6);
  EXPECT_LT(relative_error(one.dx[0], other.dx[0]), 1e-5);
  EXPECT_LT(relative_error(one.dw[0], other.dw[0]), 1e-5);
  // Evaluation computes the loss at once.
  EXPECT_EQ(a.evaluate(), one.y);
}

TEST(CrossEntropyOps, ChunkedLogitsNeverFillTheirWholeMatrix) {
  constexpr int64_t kVocab = 20011, kRows = 4000;
  const OpCheck check = many_rows(true, kRows, kVocab);
  OpBench bench(check, DType::kF32);
  bench.run();
  EXPECT_LT(bench.runtime().pool().stats().peak_bytes, kRows * kVocab * 4 / 6);
}

TEST(CrossEntropyOps, ABatchWithoutValidTargetsCostsNothing) {
  const OpCheck check = {
      .inputs = {{1, 3, 6}},
      .parameters = {{9, 6}},
      .op = [](Tape& tape, const Values& x, const Params& w) {
        return linear_cross_entropy(x[0], *w[0], batch_of(tape, {1, 3}, {-1, -1, -1}));
      }};
  const OpResult result = OpBench(check, DType::kF32).run();
  EXPECT_EQ(result.y, std::vector<double>{0.0});
  EXPECT_EQ(result.dx[0], std::vector<double>(18, 0.0));
  EXPECT_EQ(result.dw[0], std::vector<double>(54, 0.0));
}

TEST(CrossEntropyOps, UniformLogitsCostTheLogarithmOfTheVocabulary) {
  const OpCheck check = {
      .inputs = {{1, 3, 6}},
      .parameters = {{9, 6}},
      .op = [](Tape& tape, const Values& x, const Params& w) {
        return linear_cross_entropy(x[0], *w[0], batch_of(tape, {1, 3}, {1, -1, 8}));
      }};
  OpBench bench(check, DType::kF32);
  bench.w[0].assign(54, 0.0);
  EXPECT_NEAR(bench.run().y[0], std::log(9.0), 1e-6);
}

TEST(CrossEntropyOps, ADeferredLossCannotBeReadBeforeTheBackwardPass) {
  const OpCheck check = {
      .inputs = {{2, 4, 6}},
      .parameters = {{9, 6}},
      .op = [](Tape& tape, const Values& x, const Params& w) {
        const Value loss = linear_cross_entropy(x[0], *w[0], batch_of(tape, {2, 4}, kTargets));
        EXPECT_THROW(loss.view(), Error);
        EXPECT_THROW(loss.tensor(), Error);
        return loss;
      }};
  EXPECT_EQ(OpBench(check, DType::kF32).run().y.size(), 1u);
}

TEST(CrossEntropyOps, ATargetOutsideTheVocabularyIsReported) {
  const OpCheck check = {.inputs = {{1, 2, 6}},
                         .parameters = {{9, 6}},
                         .op = [](Tape& tape, const Values& x, const Params& w) {
                           return linear_cross_entropy(x[0], *w[0], batch_of(tape, {1, 2}, {1, 9}));
                         }};
  EXPECT_THROW(OpBench(check, DType::kF32).run(), Error);
}

TEST(CrossEntropyOps, MissingTargetsAreRefused) {
  const OpCheck check = {.inputs = {{1, 2, 6}},
                         .parameters = {{9, 6}},
                         .op = [](Tape&, const Values& x, const Params& w) {
                           return linear_cross_entropy(x[0], *w[0], Batch());
                         }};
  EXPECT_THROW(OpBench(check, DType::kF32).run(), Error);
}

}  // namespace
}  // namespace zpp::test
