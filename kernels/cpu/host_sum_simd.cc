#include "kernels/cpu/host_sum_simd.h"

#include "kernels/cpu/simd_math.h"

namespace zpp::kernels {
namespace ZPP_ISA {
namespace {

/// How elements of type T are added up. Integers wrap around, as unsigned ones do.
template <class T>
struct Summed {
  using type = Acc<T>;
};
template <>
struct Summed<int32_t> {
  using type = uint32_t;
};
template <>
struct Summed<int64_t> {
  using type = uint64_t;
};

/// Reading and writing elements as accumulators of type A.
template <class A, class T>
ZPP_INLINE A get(T x) {
  if constexpr (sizeof(T) == sizeof(bf16)) {
    return load(x);
  } else {
    return static_cast<A>(x);
  }
}
template <class T, class A>
ZPP_INLINE T put(A x) {
  if constexpr (sizeof(T) == sizeof(bf16)) {
    return store<T>(x);
  } else {
    return static_cast<T>(x);
  }
}

struct Plus {
  template <class A>
  ZPP_INLINE A of(A a, A b) {
    return a + b;
  }
};
/// A NaN on either side wins.
struct Greater {
  template <class A>
  ZPP_INLINE A of(A a, A b) {
    return (b > a) | (b != b) ? b : a;
  }
};

template <class Op, class From, class To, class A>
ZPP_INLINE void reduce_pair(const From* a, const From* b, To* out, int64_t n, A scale) {
  // Two cache lines at a time, those half a kilobyte on asked for: what a rank adds to comes from
  // memory, and chunks are too short for the processor to find its pace by itself.
  constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(From));
  constexpr int64_t kBlock = 2 * kLine, kAhead = 8 * kLine;
  int64_t begin = 0;
  for (; begin + kBlock <= n; begin += kBlock) {
    for (int64_t line = begin + kAhead; line < begin + kAhead + kBlock; line += kLine) {
      __builtin_prefetch(a + line);
      __builtin_prefetch(b + line);
    }
#pragma omp simd
    for (int64_t i = begin; i < begin + kBlock; ++i) {
      out[i] = put<To>(static_cast<A>(scale * Op::of(get<A>(a[i]), get<A>(b[i]))));
    }
  }
  for (int64_t i = begin; i < n; ++i) {
    out[i] = put<To>(static_cast<A>(scale * Op::of(get<A>(a[i]), get<A>(b[i]))));
  }
}

/// Not inlined: g++ would add two sources at once, without vectors.
template <class Op, class From, class A>
[[gnu::noinline]] void accumulate(A* sums, const From* x, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) sums[i] = Op::of(sums[i], get<A>(x[i]));
}

template <class Op, class From, class To, class A>
void reduce(const void* const* sources, int count, void* to, int64_t n, double factor) {
  // A tile of accumulators stays in the first-level cache while all sources are added.
  constexpr int64_t kTile = 512;
  const A scale = static_cast<A>(factor);
  const auto source = [=](int i) { return static_cast<const From*>(sources[i]); };
  To* out = static_cast<To*>(to);
  if (count == 2) return reduce_pair<Op>(source(0), source(1), out, n, scale);
  A sums[kTile];
  for (int64_t begin = 0; begin < n; begin += kTile) {
    const int64_t m = n - begin < kTile ? n - begin : kTile;
    const From* first = source(0) + begin;
#pragma omp simd
    for (int64_t i = 0; i < m; ++i) sums[i] = get<A>(first[i]);
    for (int k = 1; k < count; ++k) accumulate<Op>(sums, source(k) + begin, m);
#pragma omp simd
    for (int64_t i = 0; i < m; ++i) out[begin + i] = put<To>(static_cast<A>(scale * sums[i]));
  }
}

template <class T, class To = T>
constexpr HostReducer* kSum = reduce<Plus, T, To, typename Summed<T>::type>;

/// Integers are compared as what they are.
template <class T>
struct Compared {
  using type = T;
};
template <>
struct Compared<bf16> {
  using type = float;
};
template <class T, class To = T>
constexpr HostReducer* kMax = reduce<Greater, T, To, typename Compared<T>::type>;

}  // namespace
}  // namespace ZPP_ISA

ZPP_DEFINE_SIMD(HostSumSimd,
                {kSum<float>, kSum<bf16>, kSum<bf16, float>, kSum<double>, kSum<int32_t>,
                 kSum<int64_t>},
                {kMax<float>, kMax<bf16>, kMax<bf16, float>, kMax<double>, kMax<int32_t>,
                 kMax<int64_t>})

}  // namespace zpp::kernels
