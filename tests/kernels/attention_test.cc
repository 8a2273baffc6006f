#include "kernels/attention.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/rng.h"
#include "tests/kernels/op_case.h"

namespace zpp::kernels {
namespace {

using ::testing::HasSubstr;

struct Sizes {
  int64_t batch = 1, tokens = 1, heads = 1, kv_heads = 1, width = 1;
  std::vector<double> doc_start = {};  // repeated over (B, T); empty: no documents

  int64_t all_heads() const { return heads + 2 * kv_heads; }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(width)); }
  std::string str() const {
    return fmt::format("B {} T {} H {} KV {} D {}{}", batch, tokens, heads, kv_heads, width,
                       doc_start.empty() ? "" : " documents");
  }
  Shape fused() const { return {batch, tokens, all_heads(), width}; }
  Shape out() const { return {batch, tokens, heads, width}; }
  Shape lse() const { return {batch, heads, tokens}; }
  // Offset of head `head` of the fused projection.
  size_t at(int64_t b, int64_t t, int64_t head) const {
    return static_cast<size_t>(((b * tokens + t) * all_heads() + head) * width);
  }
  size_t out_at(int64_t b, int64_t t, int64_t head) const {
    return static_cast<size_t>(((b * tokens + t) * heads + head) * width);
  }
  size_t lse_at(int64_t b, int64_t h, int64_t t) const {
    return static_cast<size_t>((b * heads + h) * tokens + t);
  }
  int64_t first_key(int64_t b, int64_t t) const {
    if (doc_start.empty()) return 0;
    return static_cast<int64_t>(doc_start[static_cast<size_t>(b * tokens + t) % doc_start.size()]);
  }
  int64_t key_head(int64_t h) const { return heads + h / (heads / kv_heads); }
  int64_t value_head(int64_t h) const { return key_head(h) + kv_heads; }
};

double dot(const Values& a, size_t i, const Values& b, size_t j, int64_t n) {
  double sum = 0;
  for (size_t d = 0; d < static_cast<size_t>(n); ++d) sum += a[i + d] * b[j + d];
  return sum;
}

// Calls fn(b, h, t, j) for every query and every key that it sees.
template <class Fn>
void for_each_pair(const Sizes& s, const Fn& fn) {
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.heads; ++h) {
      for (int64_t t = 0; t < s.tokens; ++t) {
        for (int64_t j = s.first_key(b, t); j <= t; ++j) fn(b, h, t, j);
      }
    }
  }
}

double score(const Sizes& s, const Values& qkv, int64_t b, int64_t h, int64_t t, int64_t j) {
  return double{s.scale()} * dot(qkv, s.at(b, t, h), qkv, s.at(b, j, s.key_head(h)), s.width);
}

void forward_reference(const Sizes& s, const Values& qkv, Values& out, Values& lse) {
  std::fill(out.begin(), out.end(), 0.0);
  std::fill(lse.begin(), lse.end(), -1e300);
  Values sum(lse.size(), 0.0);
  const auto best = [&](int64_t b, int64_t h, int64_t t, int64_t j) {
    double& max = lse[s.lse_at(b, h, t)];
    max = std::max(max, score(s, qkv, b, h, t, j));
  };
  const auto add = [&](int64_t b, int64_t h, int64_t t, int64_t j) {
    const double e = std::exp(score(s, qkv, b, h, t, j) - lse[s.lse_at(b, h, t)]);
    sum[s.lse_at(b, h, t)] += e;
    for (size_t d = 0; d < static_cast<size_t>(s.width); ++d) {
      out[s.out_at(b, t, h) + d] += e * qkv[s.at(b, j, s.value_head(h)) + d];
    }
  };
  for_each_pair(s, best);
  for_each_pair(s, add);
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.heads; ++h) {
      for (int64_t t = 0; t < s.tokens; ++t) {
        const double total = sum[s.lse_at(b, h, t)];
        for (size_t d = 0; d < static_cast<size_t>(s.width); ++d) {
          out[s.out_at(b, t, h) + d] /= total;
        }
        lse[s.lse_at(b, h, t)] += std::log(total);
      }
    }
  }
}

void backward_reference(const Sizes& s, const Values& qkv, const Values& dout, const Values& out,
                        const Values& lse, Values& dqkv) {
  std::fill(dqkv.begin(), dqkv.end(), 0.0);
  for_each_pair(s, [&](int64_t b, int64_t h, int64_t t, int64_t j) {
    const size_t q = s.at(b, t, h), k = s.at(b, j, s.key_head(h)), v = s.at(b, j, s.value_head(h));
    const size_t o = s.out_at(b, t, h);
    const double p = std::exp(score(s, qkv, b, h, t, j) - lse[s.lse_at(b, h, t)]);
    const double dp = dot(dout, o, qkv, v, s.width);
    const double ds = p * (dp - dot(dout, o, out, o, s.width)) * double{s.scale()};
    for (size_t d = 0; d < static_cast<size_t>(s.width); ++d) {
      dqkv[q + d] += ds * qkv[k + d];
      dqkv[k + d] += ds * qkv[q + d];
      dqkv[v + d] += p * dout[o + d];
    }
  });
}

struct Parts {
  View q, k, v;
};
Parts split(const Sizes& s, const View& fused) {
  return {fused.slice(2, 0, s.heads), fused.slice(2, s.heads, s.heads + s.kv_heads),
          fused.slice(2, s.heads + s.kv_heads, s.all_heads())};
}

Slot documents(const Sizes& s) {
  return {"doc_start", {s.batch, s.tokens}, Role::kI32, listed(s.doc_start)};
}

OpCase forward_case(const Sizes& s, const Fill& qkv = normal()) {
  OpCase op;
  op.name = "attention " + s.str();
  op.inputs = {{"qkv", s.fused(), Role::kData, qkv}};
  if (!s.doc_start.empty()) op.inputs.push_back(documents(s));
  const double terms = static_cast<double>(s.tokens + s.width);
  op.outputs = {{.name = "out", .shape = s.out(), .terms = terms},
                {.name = "lse", .shape = s.lse(), .role = Role::kAccum, .terms = terms}};
  op.run = [s](Stream& stream, const Views& in, const Views& out) {
    const Parts parts = split(s, in[0]);
    attention(stream, {.q = parts.q,
                       .k = parts.k,
                       .v = parts.v,
                       .out = out[0],
                       .lse = out[1],
                       .doc_start = in.size() > 1 ? in[1] : View{},
                       .scale = s.scale()});
  };
  op.reference = [s](const std::vector<Values>& in, std::vector<Values>& out) {
    forward_reference(s, in[0], out[0], out[1]);
  };
  return op;
}

/// The backward pass on its own: out and lse are inputs, as precise as they would be saved.
OpCase backward_case(const Sizes& s) {
  OpCase op;
  op.name = "attention_backward " + s.str();
  Values qkv(static_cast<size_t>(s.fused().numel())), out(static_cast<size_t>(s.out().numel()));
  Values lse(static_cast<size_t>(s.lse().numel()));
  for (size_t i = 0; i < qkv.size(); ++i) {
    qkv[i] = normal()(mix_hash(op.seed, hash_name("qkv")), static_cast<int64_t>(i));
  }
  forward_reference(s, qkv, out, lse);
  op.inputs = {{"qkv", s.fused()},
               {"dout", s.out()},
               {"out", s.out(), Role::kData, listed(out)},
               {"lse", s.lse(), Role::kAccum, listed(lse)}};
  if (!s.doc_start.empty()) op.inputs.push_back(documents(s));
  op.outputs = {
      {.name = "dqkv", .shape = s.fused(), .terms = static_cast<double>(s.tokens + s.width)}};
  op.run = [s](Stream& stream, const Views& in, const Views& out_views) {
    const Parts parts = split(s, in[0]), grads = split(s, out_views[0]);
    const int64_t n = attention_backward_scratch(stream, parts.q.shape, parts.k.shape);
    const DType accumulator = in[3].dtype;
    std::vector<double> memory(static_cast<size_t>(n) + 1);
    attention_backward(stream, {.dout = in[1],
                                .q = parts.q,
                                .k = parts.k,
                                .v = parts.v,
                                .out = in[2],
                                .lse = in[3],
                                .doc_start = in.size() > 4 ? in[4] : View{},
                                .dq = grads.q,
                                .dk = grads.k,
                                .dv = grads.v,
                                .scratch = make_view(memory.data(), {n}, accumulator),
                                .scale = s.scale()});
    stream.synchronize();  // before the scratch goes
  };
  op.reference = [s](const std::vector<Values>& in, std::vector<Values>& result) {
    backward_reference(s, in[0], in[1], in[2], in[3], result[0]);
  };
  return op;
}

std::vector<Sizes> all_sizes() {
  std::vector<double> documents;
  for (int64_t t = 0; t < 131; ++t) {
    const int64_t start = t < 5 ? 0 : t < 60 ? 5 : t < 61 ? 60 : t < 130 ? 61 : 130;
    documents.push_back(static_cast<double>(start));
  }
  const std::vector<double> late(documents.begin(), documents.begin() + 70);
  return {
      {.batch = 1, .tokens = 1, .heads = 1, .kv_heads = 1, .width = 1},
      {.batch = 2, .tokens = 7, .heads = 2, .kv_heads = 1, .width = 3},
      {.batch = 1, .tokens = 50, .heads = 2, .kv_heads = 2, .width = 16},
      {.batch = 1, .tokens = 131, .heads = 2, .kv_heads = 1, .width = 64, .doc_start = documents},
      {.batch = 3, .tokens = 70, .heads = 2, .kv_heads = 1, .width = 8, .doc_start = late},
      {.batch = 1, .tokens = 200, .heads = 4, .kv_heads = 2, .width = 12},
      {.batch = 1, .tokens = 301, .heads = 1, .kv_heads = 1, .width = 8},
      {.batch = 1, .tokens = 49, .heads = 1, .kv_heads = 1, .width = 96},
      {.batch = 1, .tokens = 33, .heads = 3, .kv_heads = 3, .width = 128},
      {.batch = 1, .tokens = 30, .heads = 1, .kv_heads = 1, .width = 192},
      {.batch = 0, .tokens = 4, .heads = 2, .kv_heads = 1, .width = 8},
      {.batch = 2, .tokens = 0, .heads = 2, .kv_heads = 1, .width = 8},
  };
}

TEST(Attention, EqualsTheReference) {
  for (const Sizes& s : all_sizes()) run_op_case(forward_case(s));
}

TEST(AttentionBackward, EqualsTheReference) {
  for (const Sizes& s : all_sizes()) run_op_case(backward_case(s));
}

TEST(Attention, AveragesTheValuesWhenAllScoresAreEqualAndHuge) {
  const Sizes s{.batch = 1, .tokens = 60, .heads = 1, .kv_heads = 1, .width = 64};
  OpCase op = forward_case(s, [&s](uint64_t seed, int64_t i) {
    const int64_t head = i / s.width % s.all_heads();
    return head < 2 ? 64.0 : normal()(seed, i);
  });
  run_op_case(op);
}

TEST(Attention, HandsOnANaNToLaterQueriesOnly) {
  const Sizes s{.batch = 1, .tokens = 60, .heads = 1, .kv_heads = 1, .width = 4};
  Runtime runtime({.device = {}, .threads = 2});
  std::vector<float> qkv(static_cast<size_t>(s.fused().numel()), 0.5f);
  qkv[s.at(0, 50, 1)] = std::nanf("");  // key 50
  const Tensor in = runtime.tensor(s.fused(), DType::kF32);
  const Tensor out = runtime.tensor(s.out(), DType::kF32),
               lse = runtime.tensor(s.lse(), DType::kF32);
  copy_from_host(runtime.compute(), qkv, in.view());
  forward_case(s).run(runtime.compute(), {in.view()}, {out.view(), lse.view()});
  const std::vector<float> got = copy_to_host<float>(runtime.compute(), out.view());
  for (int64_t t = 0; t < s.tokens; ++t) {
    EXPECT_EQ(std::isnan(got[s.out_at(0, t, 0)]), t >= 50) << "query " << t;
  }
}

TEST(AttentionBackward, IsTheDerivative) {
  for (const bool with_documents : {false, true}) {
    Sizes s{.batch = 2, .tokens = 9, .heads = 4, .kv_heads = 2, .width = 5};
    if (with_documents) s.doc_start = {0, 0, 0, 3, 3, 3, 3, 7, 7};
    check_gradient({.forward = forward_case(s),
                    .wrt = {0},
                    .through = {0},
                    .backward = [s](Stream& stream, const Views& in, const Views& out,
                                    const Views& dout, const Views& din, const auto& scratch) {
                      const Parts parts = split(s, in[0]), grads = split(s, din[0]);
                      const int64_t n =
                          attention_backward_scratch(stream, parts.q.shape, parts.k.shape);
                      attention_backward(stream, {.dout = dout[0],
                                                  .q = parts.q,
                                                  .k = parts.k,
                                                  .v = parts.v,
                                                  .out = out[0],
                                                  .lse = out[1],
                                                  .doc_start = in.size() > 1 ? in[1] : View{},
                                                  .dq = grads.q,
                                                  .dk = grads.k,
                                                  .dv = grads.v,
                                                  .scratch = scratch(n),
                                                  .scale = s.scale()});
                    }});
  }
}

TEST(Attention, RefusesArgumentsThatDoNotFit) {
  Runtime runtime({.device = {}, .threads = 1});
  const auto complaint = [&](const Shape& q, const Shape& k, const Shape& lse) -> std::string {
    const Tensor query = runtime.tensor(q, DType::kF32), key = runtime.tensor(k, DType::kF32);
    const Tensor sums = runtime.tensor(lse, DType::kF32);
    try {
      attention(runtime.compute(), {.q = query.view(),
                                    .k = key.view(),
                                    .v = key.view(),
                                    .out = query.view(),
                                    .lse = sums.view(),
                                    .doc_start = {},
                                    .scale = 1.0f});
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInvalidArgument);
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(complaint({1, 5, 4, 8}, {1, 5, 3, 8}, {1, 4, 5}),
              HasSubstr("3 key heads cannot be shared out to 4 query heads"));
  EXPECT_THAT(complaint({1, 5, 4, 8}, {1, 6, 4, 8}, {1, 4, 5}), HasSubstr("k is (1, 6, 4, 8)"));
  EXPECT_THAT(complaint({1, 5, 4, 8}, {1, 5, 4, 8}, {1, 5, 4}),
              HasSubstr("lse is (1, 5, 4) but should be (1, 4, 5)"));
}

TEST(AttentionBackward, RefusesScratchThatIsTooSmall) {
  Runtime runtime({.device = {}, .threads = 1});
  const Tensor x = runtime.tensor({1, 5, 2, 8}, DType::kF32);
  const Tensor lse = runtime.tensor({1, 2, 5}, DType::kF32);
  const View v = x.view();
  try {
    attention_backward(runtime.compute(), {.dout = v,
                                           .q = v,
                                           .k = v,
                                           .v = v,
                                           .out = v,
                                           .lse = lse.view(),
                                           .doc_start = {},
                                           .dq = v,
                                           .dk = v,
                                           .dv = v,
                                           .scratch = lse.view().reshape({10}),
                                           .scale = 1.0f});
    FAIL() << "was accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("scratch has 10 elements but should have"));
  }
}

}  // namespace
}  // namespace zpp::kernels
