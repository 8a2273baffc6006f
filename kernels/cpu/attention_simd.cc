#include "kernels/cpu/attention_simd.h"

#include "kernels/cpu/attention_blocks.h"

namespace zpp::kernels {
namespace ZPP_ISA {
namespace {

template <class A>
struct ForwardScratch {
  ForwardScratch(void* memory, int64_t width) {
    Carver<A> carve(memory);
    q = carve.take(kGroup, padded(width));
    out = carve.take(kGroup, padded(width));
    kt = carve.take(width, kBlock);
    v = carve.take(kBlock, padded(width));
    scores = carve.take(kBlock, kBlock);
    max = carve.take(1, kGroup).data;
    sum = carve.take(1, kGroup).data;
    elements = carve.used();
  }
  Block<A> q, out, kt, v, scores;
  A *max, *sum;
  int64_t elements;
};

int64_t forward_scratch(int64_t width) { return ForwardScratch<float>(nullptr, width).elements; }

/// One row of the running softmax: s becomes exp(s - max) with 0 at masked columns; returns the
/// factor for what was summed up before.
template <class A>
ZPP_INLINE A softmax_row(A* s, Visible seen, A& max, A& sum) {
  constexpr int kWide = kCols<A>;
  for (int j = 0; j < seen.begin; ++j) s[j] = -static_cast<A>(__builtin_inff());
  for (int j = seen.end; j < kBlock; ++j) s[j] = -static_cast<A>(__builtin_inff());
  A top[kWide];
  A total[kWide];
  for (int l = 0; l < kWide; ++l) {
    top[l] = max;
    total[l] = 0;
  }
  for (int j = 0; j < kBlock; j += kWide) {
#pragma omp simd
    for (int l = 0; l < kWide; ++l) top[l] = s[j + l] > top[l] ? s[j + l] : top[l];
  }
  A peak = top[0];
  for (int l = 1; l < kWide; ++l) peak = top[l] > peak ? top[l] : peak;
  // A row without a visible key so far stays empty: exp(-inf - 0) = 0.
  const A shift = peak == -static_cast<A>(__builtin_inff()) ? A{0} : peak;
  for (int j = 0; j < kBlock; j += kWide) {
#pragma omp simd
    for (int l = 0; l < kWide; ++l) {
      const A e = exp_of(s[j + l] - shift);
      s[j + l] = e;
      total[l] += e;
    }
  }
  A block_sum = 0;
  for (int l = 0; l < kWide; ++l) block_sum += total[l];
  const A factor = exp_of(max - shift);
  sum = sum * factor + block_sum;
  max = peak;
  return factor;
}

/// Adds one block of keys, packed in `s`, to the queries from `query` on.
template <class A>
void forward_block(const int32_t* doc, int64_t first_query, int64_t query, int64_t queries,
                   int64_t key, int64_t keys, int64_t width, ForwardScratch<A>& s) {
  const Span span = span_of(doc, query, query + queries);
  if (key >= query + queries || key + keys <= span.first) return;
  const bool masked = key + kBlock - 1 > query || key < span.all_from;
  const int64_t row0 = query - first_query;
  const Block<A> out{s.out.data + row0 * s.out.stride, s.out.stride};
  product<false>(queries, kBlock, width, Block<A>{s.q.data + row0 * s.q.stride, s.q.stride}, s.kt,
                 s.scores, false);
  for (int64_t i = 0; i < queries; ++i) {
    A* const row = s.scores.data + i * s.scores.stride;
    const A factor =
        softmax_row(row, visible(doc, query + i, key, masked), s.max[row0 + i], s.sum[row0 + i]);
    if (factor == A{1}) continue;
    A* const sums = out.data + i * out.stride;
#pragma omp simd
    for (int64_t d = 0; d < out.stride; ++d) sums[d] *= factor;
  }
  product<false>(queries, out.stride, keys, s.scores, s.v, out, true);
}

template <class T>
void forward_of(const AttentionProblem& p, const AttentionItem& item, void* memory) {
  using A = Acc<T>;
  ForwardScratch<A> s(memory, p.width);
  const int64_t begin = item.begin, end = min_of(p.tokens, begin + kGroup);
  const int64_t kv_head = item.head / (p.heads / p.kv_heads);
  const int32_t* doc = p.doc_start ? p.doc_start + item.batch * p.doc_batch : nullptr;
  load_rows<T>(at<T>(p.q, item.batch, item.head, begin), p.q.token, end - begin, p.width,
               static_cast<A>(p.scale), s.q, kGroup);
  for (int64_t i = 0; i < kGroup * s.out.stride; ++i) s.out.data[i] = 0;
  for (int64_t i = 0; i < kGroup; ++i) {
    s.max[i] = -static_cast<A>(__builtin_inff());
    s.sum[i] = 0;
  }
  const int64_t first = span_of(doc, begin, end).first / kBlock * kBlock;
  for (int64_t key = first; key < end; key += kBlock) {
    const int64_t keys = min_of(kBlock, p.tokens - key);
    pack<kBlock>(at<T>(p.k, item.batch, kv_head, key), p.k.token, 1, keys, p.width, s.kt.data);
    load_rows<T>(at<T>(p.v, item.batch, kv_head, key), p.v.token, keys, p.width, A{1}, s.v, keys);
    for (int64_t query = begin; query < end; query += kBlock) {
      forward_block(doc, begin, query, min_of(kBlock, end - query), key, keys, p.width, s);
    }
  }
  A* const lse = lse_at<A>(p, item.batch, item.head);
  for (int64_t t = begin; t < end; ++t) {
    const int64_t i = t - begin;
    lse[t] = s.max[i] + log_of(s.sum[i]);
    store_rows<T>({s.out.data + i * s.out.stride, s.out.stride}, A{1} / s.sum[i], 1, p.width,
                  at_mutable<T>(p.out, item.batch, item.head, t), p.out.token);
  }
}

template <class A>
struct BackwardScratch {
  BackwardScratch(void* memory, int64_t heads, int64_t tokens, int64_t width) {
    Carver<A> carve(memory);
    kt = carve.take(width, kBlock);
    vt = carve.take(width, kBlock);
    k = carve.take(kBlock, padded(width));
    q = carve.take(kBlock, padded(width));
    dout = carve.take(kBlock, padded(width));
    p = carve.take(kBlock, kBlock);
    ds = carve.take(kBlock, kBlock);
    dk = carve.take(kBlock, padded(width));
    dv = carve.take(kBlock, padded(width));
    delta = carve.take(heads, round_up(tokens, kBlock));
    dq = carve.take(heads * round_up(tokens, kBlock), padded(width));
    elements = carve.used();
  }
  Block<A> kt, vt, k, q, dout, p, ds, dk, dv, delta, dq;
  int64_t elements;
};

int64_t backward_scratch(int64_t heads, int64_t tokens, int64_t width) {
  return BackwardScratch<float>(nullptr, heads, tokens, width).elements;
}

/// delta[t] = sum over channels of dout * out, the part of the softmax gradient that a row has in
/// common.
template <class T>
void row_deltas(const T* dout, int64_t dout_stride, const T* out, int64_t out_stride,
                int64_t tokens, int64_t width, Acc<T>* delta) {
  constexpr int kWide = kCols<Acc<T>>;
  for (int64_t t = 0; t < tokens; ++t) {
    const T* x = dout + t * dout_stride;
    const T* y = out + t * out_stride;
    Acc<T> lane[kWide] = {};
    int64_t d = 0;
    for (; d + kWide <= width; d += kWide) {
#pragma omp simd
      for (int l = 0; l < kWide; ++l) lane[l] += load(x[d + l]) * load(y[d + l]);
    }
    for (; d < width; ++d) lane[0] += load(x[d]) * load(y[d]);
    Acc<T> sum = 0;
    for (int l = 0; l < kWide; ++l) sum += lane[l];
    delta[t] = sum;
  }
}

/// p = exp(s - lse), ds = p * (dp - delta), 0 where masked. In place: s becomes p and dp becomes
/// ds.
template <class A>
ZPP_INLINE void gradient_row(A* s, A* dp, Visible seen, A lse, A delta) {
#pragma omp simd
  for (int j = 0; j < kBlock; ++j) {
    const bool hidden = j < seen.begin || j >= seen.end;
    const A p = hidden ? A{0} : exp_of(s[j] - lse);
    s[j] = p;
    dp[j] = hidden ? A{0} : p * (dp[j] - delta);
  }
}

/// Where one pair of a query head and a block of keys stands.
struct Place {
  int64_t batch, head, key, keys;
  const int32_t* doc;
};

/// Adds what queries [query, query + queries) of one head give to the gradients of a block of keys,
/// and the other way round.
template <class T>
void backward_block(const AttentionProblem& p, const Place& at_key, int64_t query, int64_t queries,
                    const Acc<T>* delta, Block<Acc<T>> dq, BackwardScratch<Acc<T>>& s) {
  using A = Acc<T>;
  const int64_t key = at_key.key;
  const Span span = span_of(at_key.doc, query, query + queries);
  if (key + at_key.keys <= span.first) return;
  const bool masked = key + kBlock - 1 > query || key < span.all_from;
  const int64_t all_rows = round_up(queries, kRows);
  load_rows<T>(at<T>(p.q, at_key.batch, at_key.head, query), p.q.token, queries, p.width,
               static_cast<A>(p.scale), s.q, all_rows);
  load_rows<T>(at<T>(p.dout, at_key.batch, at_key.head, query), p.dout.token, queries, p.width,
               A{1}, s.dout, all_rows);
  product<false>(queries, kBlock, p.width, s.q, s.kt, s.p, false);
  product<false>(queries, kBlock, p.width, s.dout, s.vt, s.ds, false);
  const A* const lse = lse_at<A>(p, at_key.batch, at_key.head);
  for (int64_t i = 0; i < queries; ++i) {
    gradient_row(s.p.data + i * kBlock, s.ds.data + i * kBlock,
                 visible(at_key.doc, query + i, key, masked), lse[query + i], delta[query + i]);
  }
  product<true>(kBlock, s.dv.stride, queries, s.p, s.dout, s.dv, true);
  product<true>(kBlock, s.dk.stride, queries, s.ds, s.q, s.dk, true);
  product<false>(queries, dq.stride, at_key.keys, s.ds, s.k,
                 Block<A>{dq.data + query * dq.stride, dq.stride}, true);
}

/// Everything that queries give to one block of keys.
template <class T>
void backward_keys(const AttentionProblem& p, const AttentionItem& item, int64_t key,
                   const int32_t* doc, BackwardScratch<Acc<T>>& s) {
  using A = Acc<T>;
  const int64_t group = p.heads / p.kv_heads, rows = round_up(p.tokens, kBlock);
  const int64_t keys = min_of(kBlock, p.tokens - key);
  const T* const k = at<T>(p.k, item.batch, item.head, key);
  pack<kBlock>(k, p.k.token, 1, keys, p.width, s.kt.data);
  pack<kBlock>(at<T>(p.v, item.batch, item.head, key), p.v.token, 1, keys, p.width, s.vt.data);
  load_rows<T>(k, p.k.token, keys, p.width, A{1}, s.k, keys);
  for (int64_t i = 0; i < kBlock * s.dk.stride; ++i) s.dk.data[i] = s.dv.data[i] = 0;
  for (int64_t g = 0; g < group; ++g) {
    const Place place{item.batch, item.head * group + g, key, keys, doc};
    const Block<A> dq{s.dq.data + g * rows * s.dq.stride, s.dq.stride};
    for (int64_t query = key; query < p.tokens; query += kBlock) {
      backward_block<T>(p, place, query, min_of(kBlock, p.tokens - query),
                        s.delta.data + g * s.delta.stride, dq, s);
    }
  }
  store_rows<T>(s.dk, A{1}, keys, p.width, at_mutable<T>(p.dk, item.batch, item.head, key),
                p.dk.token);
  store_rows<T>(s.dv, A{1}, keys, p.width, at_mutable<T>(p.dv, item.batch, item.head, key),
                p.dv.token);
}

template <class T>
void backward_of(const AttentionProblem& p, const AttentionItem& item, void* memory) {
  using A = Acc<T>;
  const int64_t group = p.heads / p.kv_heads, rows = round_up(p.tokens, kBlock);
  BackwardScratch<A> s(memory, group, p.tokens, p.width);
  const int32_t* doc = p.doc_start ? p.doc_start + item.batch * p.doc_batch : nullptr;
  for (int64_t g = 0; g < group; ++g) {
    const int64_t head = item.head * group + g;
    row_deltas(at<T>(p.dout, item.batch, head, 0), p.dout.token, at<T>(p.out, item.batch, head, 0),
               p.out.token, p.tokens, p.width, s.delta.data + g * s.delta.stride);
  }
  for (int64_t i = 0; i < group * rows * s.dq.stride; ++i) s.dq.data[i] = 0;
  for (int64_t key = 0; key < p.tokens; key += kBlock) backward_keys<T>(p, item, key, doc, s);
  for (int64_t g = 0; g < group; ++g) {
    store_rows<T>({s.dq.data + g * rows * s.dq.stride, s.dq.stride}, static_cast<A>(p.scale),
                  p.tokens, p.width, at_mutable<T>(p.dq, item.batch, item.head * group + g, 0),
                  p.dq.token);
  }
}

void forward(const AttentionProblem& p, const AttentionItem& item, void* scratch) {
  if (p.dtype == DType::kF32) return forward_of<float>(p, item, scratch);
  if (p.dtype == DType::kBF16) return forward_of<bf16>(p, item, scratch);
  return forward_of<double>(p, item, scratch);
}

void backward(const AttentionProblem& p, const AttentionItem& item, void* scratch) {
  if (p.dtype == DType::kF32) return backward_of<float>(p, item, scratch);
  if (p.dtype == DType::kBF16) return backward_of<bf16>(p, item, scratch);
  return backward_of<double>(p, item, scratch);
}

}  // namespace
}  // namespace ZPP_ISA

ZPP_DEFINE_SIMD(AttentionSimd, forward, forward_scratch, kGroup, backward, backward_scratch)

}  // namespace zpp::kernels
