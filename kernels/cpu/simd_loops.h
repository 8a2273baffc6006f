// Loops over arrays for the *_simd.cc files. `f` is a generic function: it is called with blocks for
// f32 and bf16, and with numbers for f64. Arrays are passed one by one: GCC would keep an array of
// pointers in memory and read it again after every store.
#pragma once

#include "kernels/cpu/simd_vector.h"

namespace zpp::kernels {
namespace ZPP_ISA {

/// Up to n elements of an array, zeros behind them.
template <class T>
struct Few {
  T v[kBlock];
};
template <class T>
ZPP_INLINE Few<T> few_of(const T* from, int64_t n) {
  Few<T> few = {};
  for (int64_t i = 0; i < n; ++i) few.v[i] = from[i];
  return few;
}

/// How a result is put down: in place of what is there; added to it; or past the caches, for outputs
/// that would leave them before anybody reads them.
enum class Put : uint8_t { kStore, kAdd, kStream };

template <Put kPut, class T>
ZPP_INLINE void put_block(T* to, Block<T> y) {
  if constexpr (kPut == Put::kAdd) y = load_block(to) + y;
  store_block<kPut == Put::kStream>(to, y);
}
/// The first n elements of y.
template <Put kPut, class T>
ZPP_INLINE void put_few(T* to, const Block<T>& y, int64_t n) {
  Few<T> few = few_of(to, n);
  put_block<kPut == Put::kAdd ? kPut : Put::kStore>(few.v, y);
  for (int64_t i = 0; i < n; ++i) to[i] = few.v[i];
}

template <Put kPut, class T, class F, class... In>
ZPP_INLINE void map_blocks(T* out, int64_t n, const F& f, const In*... in) {
  int64_t i = 0;
  if constexpr (kPut == Put::kStream) {
    // Stores past the caches have to be aligned.
    constexpr int64_t kBytes = 4 * kWidth;
    const auto off = static_cast<int64_t>(reinterpret_cast<uintptr_t>(out) % kBytes);
    const int64_t head = (kBytes - off) % kBytes / static_cast<int64_t>(sizeof(T));
    i = head < n ? head : n;
    if (i > 0) put_few<kPut>(out, f(load_block(few_of(in, i).v)...), i);
  }
  for (; i + kBlock <= n; i += kBlock) put_block<kPut>(out + i, f(load_block(in + i)...));
  if (i < n) put_few<kPut>(out + i, f(load_block(few_of(in + i, n - i).v)...), n - i);
  if constexpr (kPut == Put::kStream) _mm_sfence();
}

/// out[i] (+)= f(in[i]...) for i in [0, n); `out` may be one of them.
template <class T, class F, class... In>
ZPP_INLINE void map(T* out, Put put, int64_t n, const F& f, const In*... in) {
  if constexpr (sizeof(T) == sizeof(double)) {
    for (int64_t i = 0; i < n; ++i) out[i] = f(in[i]...) + (put == Put::kAdd ? out[i] : 0.0);
  } else if (put == Put::kAdd) {
    map_blocks<Put::kAdd>(out, n, f, in...);
  } else if (put == Put::kStream) {
    map_blocks<Put::kStream>(out, n, f, in...);
  } else {
    map_blocks<Put::kStore>(out, n, f, in...);
  }
}

/// What a function returns that writes two arrays.
template <class A>
struct Two {
  A a, b;
};

template <Put kPut, class T, class F, class... In>
ZPP_INLINE void map_blocks_two(T* a, T* b, int64_t n, const F& f, const In*... in) {
  int64_t i = 0;
  for (; i + kBlock <= n; i += kBlock) {
    const Two<Block<T>> y = f(load_block(in + i)...);
    put_block<kPut>(a + i, y.a);
    put_block<kPut>(b + i, y.b);
  }
  if (i == n) return;
  const Two<Block<T>> y = f(load_block(few_of(in + i, n - i).v)...);
  put_few<kPut>(a + i, y.a, n - i);
  put_few<kPut>(b + i, y.b, n - i);
}

/// a[i], b[i] (+)= f(in[i]...), with a Two as result.
template <class T, class F, class... In>
ZPP_INLINE void map_two(T* a, T* b, bool accumulate, int64_t n, const F& f, const In*... in) {
  if constexpr (sizeof(T) == sizeof(double)) {
    for (int64_t i = 0; i < n; ++i) {
      const Two<double> y = f(in[i]...);
      a[i] = y.a + (accumulate ? a[i] : 0.0);
      b[i] = y.b + (accumulate ? b[i] : 0.0);
    }
  } else if (accumulate) {
    map_blocks_two<Put::kAdd>(a, b, n, f, in...);
  } else {
    map_blocks_two<Put::kStore>(a, b, n, f, in...);
  }
}

/// out[i] (+)= f(in[i]) from f32 to bf16 or back. Any NaN stays one.
template <class From, class To, class F>
ZPP_INLINE void map_in_order(const From* in, To* out, bool accumulate, int64_t n, const F& f) {
  const auto one = [&](const From* from, To* to) ZPP_LAMBDA {
    Block<To> y = f(load_in_order<To>(from));
    if (accumulate) y = load_in_order<To>(to) + y;
    store_in_order(to, y);
  };
  int64_t i = 0;
  for (; i + kBlock <= n; i += kBlock) one(in + i, out + i);
  if (i == n) return;
  const Few<From> from = few_of(in + i, n - i);
  Few<To> to = few_of(out + i, n - i);
  one(from.v, to.v);
  for (int64_t k = 0; i + k < n; ++k) out[i + k] = to.v[k];
}

/// The sum of f(in[i]...) over [0, n), in an order that depends on n only. `f` is called with
/// numbers, too, for what does not fill a block.
template <class T, class F, class... In>
ZPP_INLINE Acc<T> sum(int64_t n, const F& f, const T* first, const In*... in) {
  int64_t i = 0;
  Acc<T> total = 0;
  if constexpr (sizeof(T) != sizeof(double)) {
    Block<T> sums{};
    for (; i + kBlock <= n; i += kBlock) {
      sums = sums + f(load_block(first + i), load_block(in + i)...);
    }
    total = sum_of(sums);
  }
  for (; i < n; ++i) total += f(load(first[i]), load(in[i])...);
  return total;
}

}  // namespace ZPP_ISA
}  // namespace zpp::kernels
