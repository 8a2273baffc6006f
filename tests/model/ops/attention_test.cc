#include "model/ops/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "model/ops/elementwise.h"
#include "tests/model/grad_check.h"

namespace zpp::test {
namespace {

using Values = std::vector<Value>;
using Params = std::vector<Parameter*>;

/// Softmax attention written out, for one sample, over [q | k | v].
std::vector<double> naive_attention(const std::vector<double>& qkv, int64_t tokens, int64_t heads,
                                    int64_t kv_heads, int64_t width) {
  const int64_t row = (heads + 2 * kv_heads) * width;
  const auto at = [&](int64_t t, int64_t part, int64_t d) {
    return qkv[static_cast<size_t>(t * row + part * width + d)];
  };
  std::vector<double> out;
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t key = heads + h / (heads / kv_heads);
      std::vector<double> sum(static_cast<size_t>(width), 0.0);
      double total = 0;
      for (int64_t s = 0; s <= t; ++s) {
        double score = 0;
        for (int64_t d = 0; d < width; ++d) score += at(t, h, d) * at(s, key, d);
        const double weight = std::exp(score / std::sqrt(static_cast<double>(width)));
        total += weight;
        for (int64_t d = 0; d < width; ++d) {
          sum[static_cast<size_t>(d)] += weight * at(s, key + kv_heads, d);
        }
      }
      for (double v : sum) out.push_back(v / total);
    }
  }
  return out;
}

TEST(AttentionOps, AttentionHasItsGradient) {
  check_op({.inputs = {{2, 7, 36}},
            .parameters = {},
            .op = [](Tape&, const Values& x, const Params&) { return causal_attention(x[0], 3); }});
}

TEST(AttentionOps, GroupedQueriesShareAKeyHead) {
  const OpCheck check = {
      .inputs = {{1, 6, 32}}, .parameters = {}, .op = [](Tape&, const Values& x, const Params&) {
        return causal_attention(x[0], 4, 2);
      }};
  check_op(check);
  OpBench bench(check, DType::kF64);
  EXPECT_LT(relative_error(bench.run().y, naive_attention(bench.x[0], 6, 4, 2, 4)), 1e-6);
}

TEST(AttentionOps, DocumentsDoNotSeeEachOther) {
  OpCheck packed = {
      .inputs = {{1, 7, 24}},
      .parameters = {},
      .op = [](Tape&, const Values& x, const Params&) { return causal_attention(x[0], 2); },
      .doc_start = {0, 0, 0, 3, 3, 3, 3},
      .doc_shape = {1, 7}};
  check_op(packed);
  OpBench bench(packed, DType::kF64);
  const std::vector<double> y = bench.run().y;
  const std::vector<double> second(bench.x[0].begin() + 3 * 24, bench.x[0].end());
  const std::vector<double> want = naive_attention(second, 4, 2, 2, 4);
  EXPECT_LT(relative_error(std::vector<double>(y.begin() + 3 * 8, y.end()), want), 1e-6);
}

TEST(AttentionOps, RopeHasItsGradient) {
  check_op(
      {.inputs = {{2, 5, 24}}, .parameters = {}, .op = [](Tape&, const Values& x, const Params&) {
         return rope(x[0], 2, 1, {.rotary_dims = 4, .theta = 100.0});
       }});
}

TEST(AttentionOps, RopeInPlaceGivesTheSame) {
  const RopeSpec spec = {.rotary_dims = 6, .theta = 100.0};
  const OpCheck copied = {.inputs = {{2, 5, 24}},
                          .parameters = {},
                          .op = [spec](Tape&, const Values& x, const Params&) {
                            const Value h = gelu(x[0], Activation::kGeluTanh);
                            const Value y = rope(h, 2, 1, spec);
                            EXPECT_NE(y.view().data, h.view().data);
                            return add(y, y);
                          }};
  const OpCheck in_place = {.inputs = {{2, 5, 24}},
                            .parameters = {},
                            .op = [spec](Tape&, const Values& x, const Params&) {
                              Value h = gelu(x[0], Activation::kGeluTanh);
                              const void* data = h.view().data;
                              const Value y = rope(std::move(h), 2, 1, spec);
                              EXPECT_EQ(y.view().data, data);
                              return add(y, y);
                            }};
  const OpResult a = OpBench(copied, DType::kF32).run(), b = OpBench(in_place, DType::kF32).run();
  EXPECT_EQ(a.y, b.y);
  EXPECT_EQ(a.dx, b.dx);
}

TEST(AttentionOps, RopeLeavesValuesAndOtherChannelsAlone) {
  const OpCheck check = {
      .inputs = {{1, 4, 24}}, .parameters = {}, .op = [](Tape&, const Values& x, const Params&) {
        return rope(x[0], 2, 1, {.rotary_dims = 2, .theta = 100.0});
      }};
  OpBench bench(check, DType::kF32);
  const std::vector<double> y = bench.run().y;
  for (size_t i = 0; i < y.size(); ++i) {
    const size_t t = i / 24, head = i % 24 / 6, channel = i % 6;
    const bool turned = t > 0 && head < 3 && channel < 2;
    EXPECT_EQ(y[i] != bench.x[0][i], turned) << "element " << i;
  }
}

TEST(AttentionOps, RotaryPositionsStartAgainInEachDocument) {
  const auto op = [](Tape&, const Values& x, const Params&) {
    return causal_attention(rope(x[0], 1, 1, {.rotary_dims = 4}), 1);
  };
  const OpCheck alone = {.inputs = {{1, 3, 12}}, .parameters = {}, .op = op};
  const OpCheck packed = {.inputs = {{1, 5, 12}},
                          .parameters = {},
                          .op = op,
                          .doc_start = {0, 0, 2, 2, 2},
                          .doc_shape = {1, 5}};
  OpBench first(alone, DType::kF64), second(packed, DType::kF64);
  std::copy(first.x[0].begin(), first.x[0].end(), second.x[0].begin() + 24);
  const std::vector<double> want = first.run().y, got = second.run().y;
  EXPECT_LT(relative_error(std::vector<double>(got.begin() + 8, got.end()), want), 1e-12);
}

TEST(AttentionOps, HeadsThatDoNotDivideAreRefused) {
  const OpCheck check = {
      .inputs = {{1, 3, 25}}, .parameters = {}, .op = [](Tape&, const Values& x, const Params&) {
        return causal_attention(x[0], 2);
      }};
  EXPECT_THROW(OpBench(check, DType::kF32).run(), Error);
}

}  // namespace
}  // namespace zpp::test
