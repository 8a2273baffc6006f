#include "kernels/cpu/norm_simd.h"

#include "kernels/cpu/simd_loops.h"

namespace zpp::kernels {
namespace ZPP_ISA {
namespace {

/// Mean and variance of a row (without kCentre: 0 and the mean square).
template <class A>
struct Moments {
  A mean, variance;
};

template <class T, bool kCentre>
ZPP_INLINE Moments<Acc<T>> moments_in_two_passes(const T* x, int64_t n) {
  using A = Acc<T>;
  A mean = 0;
  if constexpr (kCentre) {
    mean = sum<T>(
               n, [](auto v) ZPP_LAMBDA { return v; }, x) /
           static_cast<A>(n);
  }
  const auto square = [=](auto v) ZPP_LAMBDA {
    const auto d = v - mean;
    return d * d;
  };
  return {mean, sum<T>(n, square, x) / static_cast<A>(n)};
}

/// In one pass, of what is left after taking away the mean of the first block: the square of what
/// that misses the mean by is at most n / kBlock variances, so the difference of the two sums loses
/// no more than the digits of that factor. Instructions for a vector: 3.
template <class T>
ZPP_INLINE Moments<float> moments_in_one_pass(const T* x, int64_t n) {
  const float shift = sum_of(load_block(x)) / kBlock;
  Block<T> first{}, second{};
  int64_t i = 0;
  for (; i + kBlock <= n; i += kBlock) {
    const Block<T> d = load_block(x + i) - shift;
    first = first + d;
    second = second + d * d;
  }
  float total = sum_of(first), squares = sum_of(second);
  for (; i < n; ++i) {
    const float d = load(x[i]) - shift;
    total += d;
    squares += d * d;
  }
  const float missed = total / static_cast<float>(n);
  const float variance = squares / static_cast<float>(n) - missed * missed;
  return {shift + missed, variance > 0.0f ? variance : variance * 0.0f};
}

template <class T, bool kCentre>
ZPP_INLINE Moments<Acc<T>> moments(const T* x, int64_t n) {
  if constexpr (kCentre && sizeof(T) != sizeof(double)) {
    if (n >= kBlock) return moments_in_one_pass(x, n);
  }
  return moments_in_two_passes<T, kCentre>(x, n);
}

/// With kCentre the LayerNorm, without it the RMSNorm. Instructions for a vector: 6, for bf16 4 to
/// split what is read and 5.5 to round and join.
template <class T, bool kCentre>
void forward(const NormForward& a, int64_t begin, int64_t end) {
  using A = Acc<T>;
  const auto* gamma = static_cast<const T*>(a.gamma);
  const auto* beta = static_cast<const T*>(a.beta);
  const int64_t n = a.cols;
  for (int64_t row = begin; row < end; ++row) {
    const T* x = static_cast<const T*>(a.x) + row * n;
    T* y = static_cast<T*>(a.y) + row * n;
    const Moments<A> of_row = moments<T, kCentre>(x, n);
    const A mean = of_row.mean;
    const A rstd = A{1} / sqrt_of(of_row.variance + static_cast<A>(a.eps));
    if constexpr (kCentre) static_cast<A*>(a.mean)[row] = mean;
    static_cast<A*>(a.rstd)[row] = rstd;
    if (beta != nullptr) {
      map(
          y, Put::kStore, n,
          [=](auto v, auto g, auto b) ZPP_LAMBDA { return (v - mean) * rstd * g + b; }, x, gamma,
          beta);
    } else {
      map(
          y, Put::kStore, n, [=](auto v, auto g) ZPP_LAMBDA { return (v - mean) * rstd * g; }, x,
          gamma);
    }
  }
}

template <class T>
struct RowGradient {
  const T* dy;
  const T* x;
  const T* gamma;
  Acc<T> mean, rstd;
  int64_t n;
};

/// With g = dy * gamma and z = (x - mean) * rstd: the sums of g and of g z over a row.
template <class A>
struct RowSums {
  A g, gz;
};

/// The sums of a row, and the row added to the partial sums over columns, in one pass.
/// Instructions for a vector: 8, for bf16 6 to widen what is read.
template <class T, bool kGamma, bool kBeta>
ZPP_INLINE RowSums<Acc<T>> add_row(const RowGradient<T>& r, Acc<T>* dgamma, Acc<T>* dbeta) {
  RowSums<Acc<T>> sums{};
  int64_t i = 0;
  if constexpr (sizeof(T) != sizeof(double)) {
    VF g0{}, g1{}, gz0{}, gz1{};
    const auto one = [&](int64_t at, VF& g_sum, VF& gz_sum) ZPP_LAMBDA {
      const VF dy = load_vector(r.dy + at);
      const VF z = (load_vector(r.x + at) - r.mean) * r.rstd;
      const VF g = dy * load_vector(r.gamma + at);
      g_sum += g;
      gz_sum += g * z;
      if constexpr (kGamma) put<false>(dgamma + at, bits_of(load_vector(dgamma + at) + dy * z));
      if constexpr (kBeta) put<false>(dbeta + at, bits_of(load_vector(dbeta + at) + dy));
    };
    for (; i + 2 * kWidth <= r.n; i += 2 * kWidth) {
      one(i, g0, gz0);
      one(i + kWidth, g1, gz1);
    }
    sums = {sum_of_lanes(g0 + g1), sum_of_lanes(gz0 + gz1)};
  }
  for (; i < r.n; ++i) {
    const Acc<T> dy = load(r.dy[i]);
    const Acc<T> z = (load(r.x[i]) - r.mean) * r.rstd;
    const Acc<T> g = dy * load(r.gamma[i]);
    sums.g += g;
    sums.gz += g * z;
    if constexpr (kGamma) dgamma[i] += dy * z;
    if constexpr (kBeta) dbeta[i] += dy;
  }
  return sums;
}

/// dx = rstd * (g - mean(g) - z * mean(g z)), where RMSNorm has no mean(g). Instructions for a
/// vector: 6, for bf16 3 and 5.5.
template <class T, bool kCentre>
ZPP_INLINE void row_dx(const RowGradient<T>& r, const RowSums<Acc<T>>& sums, T* dx,
                       bool accumulate) {
  using A = Acc<T>;
  const A mean = r.mean, rstd = r.rstd;
  const A scale = rstd / static_cast<A>(r.n);
  const A by_g = kCentre ? scale * sums.g : A{0};
  const A by_gz = scale * sums.gz * rstd;
  map(
      dx, accumulate ? Put::kAdd : Put::kStore, r.n,
      [=](auto dy, auto x, auto gamma)
          ZPP_LAMBDA { return dy * gamma * rstd - by_g - (x - mean) * by_gz; },
      r.dy, r.x, r.gamma);
}

template <class T, bool kCentre, bool kGamma, bool kBeta>
void backward_rows(const NormBackward& a, const NormPartials& partials, int64_t begin,
                   int64_t end) {
  using A = Acc<T>;
  const int64_t n = a.cols;
  auto* dgamma = static_cast<A*>(partials.dgamma);
  auto* dbeta = static_cast<A*>(partials.dbeta);
  for (int64_t i = 0; kGamma && i < n; ++i) dgamma[i] = 0;
  for (int64_t i = 0; kBeta && i < n; ++i) dbeta[i] = 0;
  for (int64_t row = begin; row < end; ++row) {
    RowGradient<T> r;
    r.dy = static_cast<const T*>(a.dy) + row * n;
    r.x = static_cast<const T*>(a.x) + row * n;
    r.gamma = static_cast<const T*>(a.gamma);
    r.mean = kCentre ? static_cast<const A*>(a.mean)[row] : A{0};
    r.rstd = static_cast<const A*>(a.rstd)[row];
    r.n = n;
    // All of the row is read before dx may take the place of dy.
    const RowSums<A> sums = add_row<T, kGamma, kBeta>(r, dgamma, dbeta);
    if (a.dx != nullptr) {
      row_dx<T, kCentre>(r, sums, static_cast<T*>(a.dx) + row * n, a.accumulate);
    }
  }
}

template <class T, bool kCentre>
void backward(const NormBackward& a, const NormPartials& partials, int64_t begin, int64_t end) {
  if (partials.dgamma != nullptr && partials.dbeta != nullptr) {
    backward_rows<T, kCentre, true, true>(a, partials, begin, end);
  } else if (partials.dgamma != nullptr) {
    backward_rows<T, kCentre, true, false>(a, partials, begin, end);
  } else if (partials.dbeta != nullptr) {
    backward_rows<T, kCentre, false, true>(a, partials, begin, end);
  } else {
    backward_rows<T, kCentre, false, false>(a, partials, begin, end);
  }
}

template <class A>
void combine(const void* partials, int64_t blocks, int64_t stride, void* out, bool accumulate,
             int64_t begin, int64_t end) {
  constexpr int64_t kTile = 256;
  A sums[kTile];
  for (int64_t tile = begin; tile < end; tile += kTile) {
    const int64_t n = end - tile < kTile ? end - tile : kTile;
    for (int64_t i = 0; i < n; ++i) sums[i] = 0;
    for (int64_t b = 0; b < blocks; ++b) {
      map(
          sums, Put::kAdd, n, [](auto v) ZPP_LAMBDA { return v; },
          static_cast<const A*>(partials) + b * stride + tile);
    }
    map(
        static_cast<A*>(out) + tile, accumulate ? Put::kAdd : Put::kStore, n,
        [](auto v) ZPP_LAMBDA { return v; }, static_cast<const A*>(sums));
  }
}

}  // namespace
}  // namespace ZPP_ISA

ZPP_DEFINE_SIMD(NormSimd, {forward<float, true>, forward<bf16, true>, forward<double, true>},
                {forward<float, false>, forward<bf16, false>, forward<double, false>},
                {backward<float, true>, backward<bf16, true>, backward<double, true>},
                {backward<float, false>, backward<bf16, false>, backward<double, false>},
                {combine<float>, combine<float>, combine<double>})

}  // namespace zpp::kernels
