#include "kernels/cpu/norm_simd.h"

#include "kernels/cpu/simd_loops.h"

namespace zpp::kernels {
namespace ZPP_ISA {
namespace {

/// With kCentre the LayerNorm, without it the RMSNorm.
template <class T, bool kCentre>
void forward(const NormForward& a, int64_t begin, int64_t end) {
  using A = Acc<T>;
  const auto* gamma = static_cast<const T*>(a.gamma);
  const auto* beta = static_cast<const T*>(a.beta);
  const int64_t n = a.cols;
  for (int64_t row = begin; row < end; ++row) {
    const T* x = static_cast<const T*>(a.x) + row * n;
    T* y = static_cast<T*>(a.y) + row * n;
    A mean = 0;
    if constexpr (kCentre) {
      mean = sum_of<A>(n, [=](int64_t i) { return load(x[i]); }) / static_cast<A>(n);
      static_cast<A*>(a.mean)[row] = mean;
    }
    // The row is in the first-level cache by now: a second pass over it costs less than the
    // cancellation of a one-pass variance.
    const A squares = sum_of<A>(n, [=](int64_t i) {
      const A d = load(x[i]) - mean;
      return d * d;
    });
    const A rstd = A{1} / sqrt_of(squares / static_cast<A>(n) + static_cast<A>(a.eps));
    static_cast<A*>(a.rstd)[row] = rstd;
    if (beta != nullptr) {
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) {
        y[i] = store<T>((load(x[i]) - mean) * rstd * load(gamma[i]) + load(beta[i]));
      }
    } else {
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) {
        y[i] = store<T>((load(x[i]) - mean) * rstd * load(gamma[i]));
      }
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

/// With g = dy * gamma and z = (x - mean) * rstd: dx = rstd * (g - mean(g) - z * mean(g z)), where
/// RMSNorm has no mean(g).
template <class T, bool kCentre>
ZPP_INLINE void row_dx(const RowGradient<T>& r, T* dx, bool accumulate) {
  using A = Acc<T>;
  const T* dy = r.dy;
  const T* x = r.x;
  const T* gamma = r.gamma;
  const A mean = r.mean, rstd = r.rstd;
  const A scale = A{1} / static_cast<A>(r.n);
  A mean_g = 0;
  if constexpr (kCentre) {
    mean_g = scale * sum_of<A>(r.n, [=](int64_t i) { return load(dy[i]) * load(gamma[i]); });
  }
  const A mean_gz = scale * sum_of<A>(r.n, [=](int64_t i) {
                      return load(dy[i]) * load(gamma[i]) * ((load(x[i]) - mean) * rstd);
                    });
  put_each(dx, accumulate, 0, r.n, [=](int64_t i) {
    const A z = (load(x[i]) - mean) * rstd;
    return rstd * (load(dy[i]) * load(gamma[i]) - mean_g - z * mean_gz);
  });
}

template <class T>
ZPP_INLINE void add_row_to_partials(const RowGradient<T>& r, Acc<T>* dgamma, Acc<T>* dbeta) {
  const T* dy = r.dy;
  const T* x = r.x;
  const Acc<T> mean = r.mean, rstd = r.rstd;
  if (dgamma != nullptr) {
    put_each(dgamma, true, 0, r.n,
             [=](int64_t i) { return load(dy[i]) * ((load(x[i]) - mean) * rstd); });
  }
  if (dbeta != nullptr) {
    put_each(dbeta, true, 0, r.n, [=](int64_t i) { return load(dy[i]); });
  }
}

template <class T, bool kCentre>
void backward(const NormBackward& a, const NormPartials& partials, int64_t begin, int64_t end) {
  using A = Acc<T>;
  const int64_t n = a.cols;
  auto* dgamma = static_cast<A*>(partials.dgamma);
  auto* dbeta = static_cast<A*>(partials.dbeta);
  for (A* sums : {dgamma, dbeta}) {
    if (sums != nullptr) put_each(sums, false, 0, n, [](int64_t) { return A{0}; });
  }
  for (int64_t row = begin; row < end; ++row) {
    RowGradient<T> r;
    r.dy = static_cast<const T*>(a.dy) + row * n;
    r.x = static_cast<const T*>(a.x) + row * n;
    r.gamma = static_cast<const T*>(a.gamma);
    r.mean = kCentre ? static_cast<const A*>(a.mean)[row] : A{0};
    r.rstd = static_cast<const A*>(a.rstd)[row];
    r.n = n;
    // First, because dx may take the place of dy.
    add_row_to_partials(r, dgamma, dbeta);
    if (a.dx != nullptr) row_dx<T, kCentre>(r, static_cast<T*>(a.dx) + row * n, a.accumulate);
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
      const A* part = static_cast<const A*>(partials) + b * stride + tile;
      put_each(sums, true, 0, n, [=](int64_t i) { return part[i]; });
    }
    put_each(static_cast<A*>(out) + tile, accumulate, 0, n, [&](int64_t i) { return sums[i]; });
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
