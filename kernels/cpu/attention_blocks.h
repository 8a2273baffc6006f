// Blocks of attention: all operands are widened to the accumulation type in scratch buffers padded
// to whole vectors, so that the products need no edge cases. What lies beyond the real extents is
// zero, or lands in padding that nobody reads. For attention_simd.cc only.
#pragma once

#include "kernels/cpu/attention_simd.h"
#include "kernels/cpu/simd_pack.h"

namespace zpp::kernels {
namespace ZPP_ISA {

// Rows of c held in registers, and a block that is a multiple of it and of the columns held.
constexpr int kRows = kVectorBytes == 64 ? 8 : 6;
constexpr int kBlock = kVectorBytes == 64 ? 64 : 48;
// Query blocks that share one packing of a block of keys.
constexpr int64_t kGroup = 4 * kBlock;
constexpr int64_t kPad = kCols<float>;

static int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
static int64_t padded(int64_t width) { return round_up(width, kPad); }
static int64_t min_of(int64_t a, int64_t b) { return a < b ? a : b; }

/// c (kRows x 2 vectors) (+)= a b. Element (i, k) of a is a[i * stride_a + k], or a[k * stride_a +
/// i] if kTransposed.
template <bool kTransposed, class A>
ZPP_INLINE void micro(int64_t depth, const A* a, int64_t stride_a, const A* b, int64_t stride_b,
                      A* c, int64_t stride_c, bool add) {
  using V = typename Vector<A>::type;
  using U = typename Vector<A>::unaligned;
  V sum[kRows][2] = {};
  for (int64_t k = 0; k < depth; ++k) {
    const U* row = reinterpret_cast<const U*>(b + k * stride_b);
    const V b0 = row[0], b1 = row[1];
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const V x = a[kTransposed ? k * stride_a + i : i * stride_a + k] - V{};
      sum[i][0] += x * b0;
      sum[i][1] += x * b1;
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
    U* row = reinterpret_cast<U*>(c + i * stride_c);
    row[0] = add ? row[0] + sum[i][0] : sum[i][0];
    row[1] = add ? row[1] + sum[i][1] : sum[i][1];
  }
}

/// A matrix in scratch: rows x cols of which the padded part may be written.
template <class A>
struct Block {
  A* data;
  int64_t stride;
};

/// c (+)= a b or a^T b, for m x n x k rounded up to whole register blocks in m and n.
template <bool kTransposed, class A>
static void product(int64_t m, int64_t n, int64_t k, Block<A> a, Block<A> b, Block<A> c, bool add) {
  for (int64_t j = 0; j < n; j += kCols<A>) {
    for (int64_t i = 0; i < m; i += kRows) {
      micro<kTransposed>(k, a.data + (kTransposed ? i : i * a.stride), a.stride, b.data + j,
                         b.stride, c.data + i * c.stride + j, c.stride, add);
    }
  }
}

/// to = scale * from, `rows` of them with `width` real columns; padding and the rows up to
/// `all_rows` become zero.
template <class T>
static void load_rows(const T* from, int64_t stride, int64_t rows, int64_t width, Acc<T> scale,
                      Block<Acc<T>> to, int64_t all_rows) {
  for (int64_t i = 0; i < all_rows; ++i) {
    Acc<T>* row = to.data + i * to.stride;
    const int64_t real = i < rows ? width : 0;
#pragma omp simd
    for (int64_t d = 0; d < real; ++d) row[d] = scale * load(from[i * stride + d]);
    for (int64_t d = real; d < to.stride; ++d) row[d] = 0;
  }
}

/// to = scale * from, real columns only.
template <class T>
static void store_rows(Block<Acc<T>> from, Acc<T> scale, int64_t rows, int64_t width, T* to,
                       int64_t stride) {
  for (int64_t i = 0; i < rows; ++i) {
    const Acc<T>* row = from.data + i * from.stride;
#pragma omp simd
    for (int64_t d = 0; d < width; ++d) to[i * stride + d] = store<T>(scale * row[d]);
  }
}

/// Keys that the queries of a block see at all, and whether every query sees every key from
/// `all_from` to its own.
struct Span {
  int64_t first;
  int64_t all_from;
};

/// First key that query t sees.
ZPP_INLINE int64_t start_of(const int32_t* doc, int64_t t) {
  if (doc == nullptr) return 0;
  const int64_t start = doc[t];
  return start < 0 ? 0 : min_of(start, t);
}

static Span span_of(const int32_t* doc, int64_t begin, int64_t end) {
  Span span{begin, 0};
  for (int64_t t = begin; t < end; ++t) {
    const int64_t start = start_of(doc, t);
    span.first = min_of(span.first, start);
    span.all_from = start > span.all_from ? start : span.all_from;
  }
  return span;
}

/// Which columns of a block of keys from `key` <= t on query t sees: [begin, end).
struct Visible {
  int begin, end;
};
ZPP_INLINE Visible visible(const int32_t* doc, int64_t t, int64_t key, bool masked) {
  if (!masked) return {0, kBlock};
  const int64_t start = start_of(doc, t) - key;
  return {static_cast<int>(start < 0 ? 0 : min_of(start, kBlock)),
          static_cast<int>(min_of(t + 1 - key, kBlock))};
}

template <class T>
static const T* at(const HeadsView& view, int64_t batch, int64_t head, int64_t token) {
  return static_cast<const T*>(view.data) + batch * view.batch + head * view.head +
         token * view.token;
}
template <class T>
static T* at_mutable(const HeadsView& view, int64_t batch, int64_t head, int64_t token) {
  return static_cast<T*>(view.data) + batch * view.batch + head * view.head + token * view.token;
}
template <class A>
static A* lse_at(const AttentionProblem& p, int64_t batch, int64_t head) {
  return static_cast<A*>(p.lse) + batch * p.lse_batch + head * p.lse_head;
}

/// Hands out consecutive aligned pieces of a scratch buffer, or only counts them when there is
/// none.
template <class A>
class Carver {
 public:
  explicit Carver(void* memory) : data_(static_cast<A*>(memory)) {}
  Block<A> take(int64_t rows, int64_t cols) {
    A* const piece = data_ == nullptr ? nullptr : data_ + used_;
    used_ += round_up(rows * cols, kPad);
    return {piece, cols};
  }
  int64_t used() const { return used_; }

 private:
  A* data_;
  int64_t used_ = 0;
};

}  // namespace ZPP_ISA
}  // namespace zpp::kernels
