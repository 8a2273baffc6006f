#include "kernels/cpu/elementwise_simd.h"

#include "kernels/cpu/simd_loops.h"

namespace zpp::kernels {
namespace ZPP_ISA {
namespace {

template <class T>
void add(const Elements& e, int64_t begin, int64_t end) {
  const auto* a = static_cast<const T*>(e.a);
  const auto* b = static_cast<const T*>(e.b);
  put_each(static_cast<T*>(e.out), false, begin, end,
           [=](int64_t i) { return load(a[i]) + load(b[i]); });
}

template <class From, class To>
void copy(const Elements& e, int64_t begin, int64_t end) {
  // In f64 as soon as one side is.
  constexpr bool kWide = sizeof(From) == sizeof(double) || sizeof(To) == sizeof(double);
  const auto* from = static_cast<const From*>(e.a);
  if constexpr (kWide) {
    const double scale = e.scale;
    auto* to = static_cast<To*>(e.out);
    const bool accumulate = e.accumulate;
    if (accumulate) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) {
        to[i] = store<To>(static_cast<Acc<To>>(static_cast<double>(load(to[i])) +
                                               scale * static_cast<double>(load(from[i]))));
      }
    } else {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) {
        to[i] = store<To>(static_cast<Acc<To>>(scale * static_cast<double>(load(from[i]))));
      }
    }
  } else {
    const auto scale = static_cast<float>(e.scale);
    put_each(static_cast<To*>(e.out), e.accumulate, begin, end,
             [=](int64_t i) { return scale * load(from[i]); });
  }
}

template <class A>
ZPP_INLINE A sigmoid(A x) {
  return A{1} / (A{1} + exp_of(-x));
}

/// 0.5 (1 + tanh(u)) is sigmoid(2u), which stays exact in the left tail; this is 2u.
template <class A>
ZPP_INLINE A gelu_argument(A x) {
  constexpr A k = static_cast<A>(1.5957691216057308);  // 2 sqrt(2 / pi)
  return k * x * (A{1} + static_cast<A>(0.044715) * x * x);
}
template <class A>
ZPP_INLINE A gelu_argument_slope(A x) {
  constexpr A k = static_cast<A>(1.5957691216057308);
  return k * (A{1} + static_cast<A>(3 * 0.044715) * x * x);
}

template <class T>
void gelu_tanh(const Elements& e, int64_t begin, int64_t end) {
  const auto* a = static_cast<const T*>(e.a);
  put_each(static_cast<T*>(e.out), false, begin, end, [=](int64_t i) {
    const Acc<T> x = load(a[i]);
    return x * sigmoid(gelu_argument(x));
  });
}

template <class T>
void gelu_tanh_backward(const Elements& e, int64_t begin, int64_t end) {
  const auto* dy = static_cast<const T*>(e.a);
  const auto* a = static_cast<const T*>(e.b);
  put_each(static_cast<T*>(e.out), e.accumulate, begin, end, [=](int64_t i) {
    const Acc<T> x = load(a[i]);
    const Acc<T> s = sigmoid(gelu_argument(x));
    return load(dy[i]) * (s + x * s * (Acc<T>{1} - s) * gelu_argument_slope(x));
  });
}

/// Phi(x), the normal distribution function.
template <class A>
ZPP_INLINE A normal_cdf(A x) {
  return A{0.5} * (A{1} + erf_of(x * static_cast<A>(0.7071067811865476)));
}

template <class T>
void gelu_erf(const Elements& e, int64_t begin, int64_t end) {
  const auto* a = static_cast<const T*>(e.a);
  put_each(static_cast<T*>(e.out), false, begin, end, [=](int64_t i) {
    const Acc<T> x = load(a[i]);
    return x * normal_cdf(x);
  });
}

template <class T>
void gelu_erf_backward(const Elements& e, int64_t begin, int64_t end) {
  const auto* dy = static_cast<const T*>(e.a);
  const auto* a = static_cast<const T*>(e.b);
  put_each(static_cast<T*>(e.out), e.accumulate, begin, end, [=](int64_t i) {
    const Acc<T> x = load(a[i]);
    const Acc<T> density =
        static_cast<Acc<T>>(0.3989422804014327) * exp_of(static_cast<Acc<T>>(-0.5) * x * x);
    return load(dy[i]) * (normal_cdf(x) + x * density);
  });
}

template <class T>
void swiglu(const Elements& e, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const T* gate = static_cast<const T*>(e.a) + row * 2 * e.row;
    const T* up = gate + e.row;
    put_each(static_cast<T*>(e.out) + row * e.row, false, 0, e.row, [=](int64_t i) {
      const Acc<T> g = load(gate[i]);
      return g * sigmoid(g) * load(up[i]);
    });
  }
}

template <class T, bool kAccumulate>
ZPP_INLINE void swiglu_row_backward(const T* dy, const T* x, T* dx, int64_t width) {
  const T* gate = x;
  const T* up = x + width;
  T* dgate = dx;
  T* dup = dx + width;
  // Both halves in one loop: dx may take the place of x.
#pragma omp simd
  for (int64_t i = 0; i < width; ++i) {
    const Acc<T> g = load(gate[i]);
    const Acc<T> s = sigmoid(g);
    const Acc<T> d = load(dy[i]);
    Acc<T> by_gate = d * load(up[i]) * s * (Acc<T>{1} + g * (Acc<T>{1} - s));
    Acc<T> by_up = d * g * s;
    if constexpr (kAccumulate) {
      by_gate += load(dgate[i]);
      by_up += load(dup[i]);
    }
    dgate[i] = store<T>(by_gate);
    dup[i] = store<T>(by_up);
  }
}

template <class T>
void swiglu_backward(const Elements& e, int64_t begin, int64_t end) {
  const int64_t width = e.row;
  for (int64_t row = begin; row < end; ++row) {
    const T* dy = static_cast<const T*>(e.a) + row * width;
    const T* x = static_cast<const T*>(e.b) + row * 2 * width;
    T* dx = static_cast<T*>(e.out) + row * 2 * width;
    if (e.accumulate) {
      swiglu_row_backward<T, true>(dy, x, dx, width);
    } else {
      swiglu_row_backward<T, false>(dy, x, dx, width);
    }
  }
}

constexpr int64_t kPhiloxBlocks = 16;
constexpr int64_t kPhiloxWords = 4 * kPhiloxBlocks;

/// Words of the blocks [first, first + 16) in order, as RngKey::block() gives them, one block a
/// lane.
ZPP_INLINE void philox_words(const RngKey& key, uint64_t first, uint32_t* words) {
  const auto name_low = static_cast<uint32_t>(key.name_hash);
  const auto name_high = static_cast<uint32_t>(key.name_hash >> 32);
#pragma omp simd
  for (int64_t lane = 0; lane < kPhiloxBlocks; ++lane) {
    const uint64_t index = first + static_cast<uint64_t>(lane);
    auto c0 = static_cast<uint32_t>(index);
    auto c1 = static_cast<uint32_t>(index >> 32);
    uint32_t c2 = name_low;
    uint32_t c3 = name_high;
    auto k0 = static_cast<uint32_t>(key.seed);
    auto k1 = static_cast<uint32_t>(key.seed >> 32);
#pragma GCC unroll 10
    for (int round = 0; round < 10; ++round) {
      const uint64_t p0 = uint64_t{0xD2511F53u} * c0;
      const uint64_t p1 = uint64_t{0xCD9E8D57u} * c2;
      c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
      c1 = static_cast<uint32_t>(p1);
      c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
      c3 = static_cast<uint32_t>(p0);
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    words[4 * lane] = c0;
    words[4 * lane + 1] = c1;
    words[4 * lane + 2] = c2;
    words[4 * lane + 3] = c3;
  }
}

template <class T>
void dropout(const DropoutElements& e, int64_t begin, int64_t end) {
  const Acc<T> scale = Acc<T>{1} / (Acc<T>{1} - static_cast<Acc<T>>(e.p));
  const float p = e.p;
  alignas(64) uint32_t words[kPhiloxWords];
  for (int64_t at = begin; at < end;) {
    const uint64_t element = e.key.offset + static_cast<uint64_t>(at);
    philox_words(e.key, element / 4, words);
    // Only the first block of a range may start in its middle.
    const auto skip = static_cast<int64_t>(element % 4);
    const int64_t n = end - at < kPhiloxWords - skip ? end - at : kPhiloxWords - skip;
    const T* x = static_cast<const T*>(e.x) + at;
    const uint32_t* bits = words + skip;
    put_each(static_cast<T*>(e.y) + at, e.accumulate, 0, n, [=](int64_t i) {
      // uniform_from_bits(); the cast from a signed number is one instruction.
      const float u =
          (static_cast<float>(static_cast<int32_t>(bits[i] >> 9)) + 0.5f) * (1.0f / 8388608.0f);
      // Computed for dropped elements too: without a branch the loop is vectorised.
      const Acc<T> kept = scale * load(x[i]);
      return u >= p ? kept : Acc<T>{0};
    });
    at += n;
  }
}

}  // namespace
}  // namespace ZPP_ISA

#define ZPP_FLOATS(f) \
  { f<float>, f<bf16>, f<double> }

ZPP_DEFINE_SIMD(ElementwiseSimd, ZPP_FLOATS(add),
                {copy<float, float>, copy<float, bf16>, copy<float, double>},
                {copy<bf16, float>, copy<bf16, bf16>, copy<bf16, double>},
                {copy<double, float>, copy<double, bf16>, copy<double, double>},
                ZPP_FLOATS(gelu_tanh), ZPP_FLOATS(gelu_tanh_backward), ZPP_FLOATS(gelu_erf),
                ZPP_FLOATS(gelu_erf_backward), ZPP_FLOATS(swiglu), ZPP_FLOATS(swiglu_backward),
                ZPP_FLOATS(dropout))

}  // namespace zpp::kernels
