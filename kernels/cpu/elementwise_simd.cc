#include "kernels/cpu/elementwise_simd.h"

#include <type_traits>

#include "kernels/cpu/simd_loops.h"
#include "kernels/cpu/simd_random.h"

// Instructions are counted for one vector of f32 (8 numbers with AVX2, 16 with AVX-512) without
// loads and stores; a vector of bf16 adds 1 to split what is read and 5.5 to round and join what is
// written. kernel_bench.cc holds the same counts against the clock.
namespace zpp::kernels {
namespace ZPP_ISA {
namespace {

Put put_of(const Elements& e) {
  return e.accumulate ? Put::kAdd : e.stream ? Put::kStream : Put::kStore;
}

/// One input.
template <class T, class F>
ZPP_INLINE void map_a(const Elements& e, int64_t begin, int64_t end, const F& f) {
  map(static_cast<T*>(e.out) + begin, put_of(e), end - begin, f,
      static_cast<const T*>(e.a) + begin);
}
/// Two of them.
template <class T, class F>
ZPP_INLINE void map_ab(const Elements& e, int64_t begin, int64_t end, const F& f) {
  map(static_cast<T*>(e.out) + begin, put_of(e), end - begin, f, static_cast<const T*>(e.a) + begin,
      static_cast<const T*>(e.b) + begin);
}

template <class T>
void add(const Elements& e, int64_t begin, int64_t end) {
  map_ab<T>(e, begin, end, [](auto a, auto b) ZPP_LAMBDA { return a + b; });
}

template <class From, class To>
void copy(const Elements& e, int64_t begin, int64_t end) {
  // In f64 as soon as one side is.
  constexpr bool kWide = sizeof(From) == sizeof(double) || sizeof(To) == sizeof(double);
  const auto* from = static_cast<const From*>(e.a);
  auto* to = static_cast<To*>(e.out);
  if constexpr (kWide) {
    const double scale = e.scale;
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
    const auto f = [=](auto x) ZPP_LAMBDA { return scale * x; };
    if constexpr (sizeof(From) == sizeof(To)) {
      map_a<From>(e, begin, end, f);
    } else {
      map_in_order(from + begin, to + begin, e.accumulate, end - begin, f);
    }
  }
}

/// gelu_tanh(x) = x / (1 + 2^w): 0.5 (1 + tanh(u)) is sigmoid(2u), which stays exact in the left
/// tail. w = -2 u log2(e), u = sqrt(2/pi) (x + 0.044715 x^3).
constexpr double kGeluSlope = -2.302208198144325;  // -2 sqrt(2/pi) log2(e)
constexpr double kGeluCubic = kGeluSlope * 0.044715;
constexpr double kLog2 = 0.6931471805599453;

/// Instructions: 16, one of them a division; for bf16 15 and 6.5.
template <class T>
void gelu_tanh(const Elements& e, int64_t begin, int64_t end) {
  map_a<T>(e, begin, end, [](auto x) ZPP_LAMBDA {
    constexpr auto k1 = static_cast<Acc<T>>(kGeluSlope), k3 = static_cast<Acc<T>>(kGeluCubic);
    return x / one_plus_exp2(x * (x * x * k3 + k1));
  });
}

/// Instructions: 22, one of them a division; for bf16 21 and 7.5.
template <class T>
void gelu_tanh_backward(const Elements& e, int64_t begin, int64_t end) {
  map_ab<T>(e, begin, end, [](auto dy, auto x) ZPP_LAMBDA {
    using A = Acc<T>;
    constexpr auto k1 = static_cast<A>(kGeluSlope), k3 = static_cast<A>(kGeluCubic);
    constexpr auto d1 = static_cast<A>(-kLog2 * kGeluSlope);
    constexpr auto d3 = static_cast<A>(-3 * kLog2 * kGeluCubic);
    const auto square = x * x;
    const auto s = A{1} / one_plus_exp2(x * (square * k3 + k1));
    // The derivative s + x s (1 - s) (2u)'.
    return dy * s * (x * (square * d3 + d1) * (A{1} - s) + A{1});
  });
}

/// x Phi(x) = max(x, 0) - |x| Phi(-|x|). Instructions: 27, one of them a division; for bf16 24 and
/// 6.5.
template <class T>
void gelu_erf(const Elements& e, int64_t begin, int64_t end) {
  map_a<T>(e, begin, end, [](auto x) ZPP_LAMBDA {
    const auto a = min_of(Acc<T>{kNormalEnd}, abs_of(x));
    return max_of(Acc<T>{0}, x) - a * normal_above(a, normal_bell(a));
  });
}

/// Instructions: 30, one of them a division; for bf16 27 and 7.5.
template <class T>
void gelu_erf_backward(const Elements& e, int64_t begin, int64_t end) {
  map_ab<T>(e, begin, end, [](auto dy, auto x) ZPP_LAMBDA {
    using A = Acc<T>;
    constexpr auto kDensity = static_cast<A>(0.3989422804014327);
    const auto a = min_of(A{kNormalEnd}, abs_of(x));
    const auto bell = normal_bell(a);
    const auto above = normal_above(a, bell);
    return dy * (x * bell * kDensity + by_sign(x, above, A{1} - above));
  });
}

constexpr double kMinusLog2E = -1.4426950408889634;

/// Instructions for a vector of y: 15, one of them a division; for bf16 14 and 7.5.
template <class T>
void swiglu(const Elements& e, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const T* gate = static_cast<const T*>(e.a) + row * 2 * e.row;
    map(
        static_cast<T*>(e.out) + row * e.row, put_of(e), e.row,
        [](auto g, auto up)
            ZPP_LAMBDA { return g * up / one_plus_exp2(static_cast<Acc<T>>(kMinusLog2E) * g); },
        gate, gate + e.row);
  }
}

/// Instructions for a vector of dy: 20, one of them a division; for bf16 18 and 14.
template <class T>
void swiglu_backward(const Elements& e, int64_t begin, int64_t end) {
  const int64_t width = e.row;
  for (int64_t row = begin; row < end; ++row) {
    const T* x = static_cast<const T*>(e.b) + row * 2 * width;
    T* dx = static_cast<T*>(e.out) + row * 2 * width;
    // Both halves in one loop: dx may take the place of x.
    map_two(
        dx, dx + width, e.accumulate, width,
        [](auto d, auto g, auto up) ZPP_LAMBDA {
          constexpr auto one = Acc<T>{1};
          const auto s = one / one_plus_exp2(static_cast<Acc<T>>(kMinusLog2E) * g);
          const auto ds = d * s;
          return Two<decltype(d * s)>{ds * up * (g * (one - s) + one), ds * g};
        },
        static_cast<const T*>(e.a) + row * width, x, x + width);
  }
}

/// Instructions for a block: 172 for the random words, 16 to use them; for f32 8 to put them in
/// order, for bf16 26.
template <class T, Put kPut>
ZPP_INLINE void dropout_block(const DropoutElements& e, const Words& random, const T* x, T* y) {
  Words words = random;
  if constexpr (sizeof(T) == sizeof(float)) put_in_order(words.v);
  const auto scale = static_cast<float>(e.scale);
  Block<T> out = load_block(x);
  for (int i = 0; i < kVectors; ++i) {
    const auto keep = reinterpret_cast<VI>(words.v[i] >> 9) >= e.first_kept;
    out.v[i] = from_bits(bits_of(scale * out.v[i]) & reinterpret_cast<VU>(keep));
  }
  if constexpr (kPut == Put::kAdd) out = load_block(y) + out;
  store_block(y, out);
}

template <class T, Put kPut>
ZPP_INLINE void dropout_range(const DropoutElements& e, int64_t begin, int64_t end) {
  const T* x = static_cast<const T*>(e.x);
  T* y = static_cast<T*>(e.y);
  for_words(
      e.key, begin, end,
      [&](int64_t at, const Words& words)
          ZPP_LAMBDA { dropout_block<T, kPut>(e, words, x + at, y + at); },
      [&](int64_t at, int64_t n, const Words& words, int64_t skip) {
        T from[kBlock] = {}, to[kBlock] = {};
        for (int64_t i = 0; i < n; ++i) {
          from[skip + i] = x[at + i];
          to[skip + i] = y[at + i];
        }
        dropout_block<T, kPut>(e, words, from, to);
        for (int64_t i = 0; i < n; ++i) y[at + i] = to[skip + i];
      });
}

template <class T>
void dropout(const DropoutElements& e, int64_t begin, int64_t end) {
  if constexpr (sizeof(T) == sizeof(double)) {
    const auto* x = static_cast<const double*>(e.x);
    auto* y = static_cast<double*>(e.y);
    const auto few = [&](int64_t at, int64_t n, const Words& random, int64_t skip) {
      Words words = random;
      put_in_order(words.v);
      for (int64_t i = 0; i < n; ++i) {
        const uint32_t word = words.v[(skip + i) / kWidth][(skip + i) % kWidth];
        const bool keep = static_cast<int32_t>(word >> 9) >= e.first_kept;
        y[at + i] = (e.accumulate ? y[at + i] : 0.0) + (keep ? e.scale * x[at + i] : 0.0);
      }
    };
    for_words(
        e.key, begin, end, [&](int64_t at, const Words& words) { few(at, kBlock, words, 0); }, few);
  } else if (e.accumulate) {
    dropout_range<T, Put::kAdd>(e, begin, end);
  } else {
    dropout_range<T, Put::kStore>(e, begin, end);
  }
}

/// Instructions for a block: 172 for the random words, 124 for the normal numbers (with two square
/// roots), 4 to scale them; for f32 8 to put them in order, for bf16 22 to store them.
template <class T>
ZPP_INLINE Block<T> normal_block(const NormalElements& e, const Words& words) {
  Block<T> x;
  for (int i = 0; i < kVectors; i += 2) {
    const NormalPair<VF> pair = normal_pair_of<VectorNormalOps>(words.v[i], words.v[i + 1]);
    VF first = e.stddev * pair.first, second = e.stddev * pair.second;
    // The product is rounded as that of numbers is, not fused with the sum.
    asm("" : "+v"(first), "+v"(second));
    x.v[i] = e.mean + first;
    x.v[i + 1] = e.mean + second;
  }
  if constexpr (sizeof(T) == sizeof(float)) put_in_order(x.v);
  return x;
}

template <class T>
void fill_normal(const NormalElements& e, int64_t begin, int64_t end) {
  using Stored = std::conditional_t<sizeof(T) == sizeof(double), float, T>;
  T* out = static_cast<T*>(e.out);
  const auto few = [&](int64_t at, int64_t n, const Words& words, int64_t skip) {
    Stored values[kBlock];
    store_block(values, normal_block<Stored>(e, words));
    for (int64_t i = 0; i < n; ++i) out[at + i] = static_cast<T>(values[skip + i]);
  };
  for_words(
      e.key, begin, end,
      [&](int64_t at, const Words& words) ZPP_LAMBDA {
        if constexpr (sizeof(T) == sizeof(double)) {
          few(at, kBlock, words, 0);
        } else {
          store_block(out + at, normal_block<T>(e, words));
        }
      },
      few);
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
                ZPP_FLOATS(dropout), ZPP_FLOATS(fill_normal))

}  // namespace zpp::kernels
