#include "kernels/cpu/rope_simd.h"

#include "kernels/cpu/simd_vector.h"

namespace zpp::kernels {
namespace ZPP_ISA {
namespace {

struct SinCos {
  double sin, cos;
};

/// Error below 4e-16 for |x| up to a million: x = q * pi/2 + r, |r| <= pi/4, Taylor series in r,
/// and the quadrant q says which of the two is which. Branch-free, so that a loop over it is
/// vectorised.
ZPP_INLINE SinCos sin_cos(double x) {
  // Adding 1.5 * 2^52 leaves round(x / (pi/2)) in the low bits of the mantissa.
  constexpr double kMagic = 6755399441055744.0;
  const double shifted = x * 0.63661977236758134 + kMagic;
  const double n = shifted - kMagic;
  const auto q = __builtin_bit_cast(uint64_t, shifted);
  // pi/2 in three parts; the products of the first two with n are exact.
  double r = x - n * 0x1.921fb544p+0;
  r = r - n * 0x1.0b4611a6p-34;
  r = r - n * 0x1.3198a2e037073p-69;
  const double z = r * r;
  double s = 1.0 / 355687428096000.0;
  s = s * z - 1.0 / 1307674368000.0;
  s = s * z + 1.0 / 6227020800.0;
  s = s * z - 1.0 / 39916800.0;
  s = s * z + 1.0 / 362880.0;
  s = s * z - 1.0 / 5040.0;
  s = s * z + 1.0 / 120.0;
  s = s * z - 1.0 / 6.0;
  s = r + r * z * s;
  double c = 1.0 / 20922789888000.0;
  c = c * z - 1.0 / 87178291200.0;
  c = c * z + 1.0 / 479001600.0;
  c = c * z - 1.0 / 3628800.0;
  c = c * z + 1.0 / 40320.0;
  c = c * z - 1.0 / 720.0;
  c = c * z + 1.0 / 24.0;
  c = c * z - 0.5;
  c = 1.0 + z * c;
  const bool swap = (q & 1) != 0;
  const double sin_part = swap ? c : s;
  const double cos_part = swap ? s : c;
  const uint64_t sin_sign = (q & 2) << 62;
  const uint64_t cos_sign = ((q + 1) & 2) << 62;
  return {__builtin_bit_cast(double, __builtin_bit_cast(uint64_t, sin_part) ^ sin_sign),
          __builtin_bit_cast(double, __builtin_bit_cast(uint64_t, cos_part) ^ cos_sign)};
}

template <class T>
ZPP_INLINE T* place_of(const RopeSide& side, int64_t b, int64_t t) {
  return static_cast<T*>(side.data) + b * side.batch + t * side.time;
}

/// y_low + i y_high = (x_low + i x_high) (cosine + i sine). Instructions for a pair of vectors: 4,
/// for bf16 4 to read and 15 to round and pack.
template <class T>
ZPP_INLINE void turn(const T* x_low, const T* x_high, const Acc<T>* cosines, const Acc<T>* sines,
                     int64_t n, T* y_low, T* y_high) {
  int64_t i = 0;
  if constexpr (sizeof(T) == sizeof(bf16)) {
    for (; i + 2 * kWidth <= n; i += 2 * kWidth) {
      const VF a0 = load_vector(x_low + i), a1 = load_vector(x_low + i + kWidth);
      const VF b0 = load_vector(x_high + i), b1 = load_vector(x_high + i + kWidth);
      const VF c0 = load_vector(cosines + i), c1 = load_vector(cosines + i + kWidth);
      const VF s0 = load_vector(sines + i), s1 = load_vector(sines + i + kWidth);
      store_vectors(y_low + i, a0 * c0 - b0 * s0, a1 * c1 - b1 * s1);
      store_vectors(y_high + i, b0 * c0 + a0 * s0, b1 * c1 + a1 * s1);
    }
  }
#pragma omp simd
  for (int64_t k = i; k < n; ++k) {
    const Acc<T> low = load(x_low[k]);
    const Acc<T> high = load(x_high[k]);
    y_low[k] = store<T>(low * cosines[k] - high * sines[k]);
    y_high[k] = store<T>(high * cosines[k] + low * sines[k]);
  }
}

template <class T>
void rotate(const RopePass& a, int64_t begin, int64_t end) {
  using A = Acc<T>;
  A sines[kRopePairs];
  A cosines[kRopePairs];
  const int64_t half = a.rotary_dims / 2;
  for (int64_t place = begin; place < end; ++place) {
    const int64_t b = place / a.length;
    const int64_t t = place % a.length;
    const auto position = static_cast<double>(a.doc_start == nullptr ? t : t - a.doc_start[place]);
    const double* frequencies = a.frequencies;
#pragma omp simd
    for (int64_t i = 0; i < a.pairs; ++i) {
      const SinCos sc = sin_cos(position * frequencies[i]);
      sines[i] = static_cast<A>(sc.sin);
      cosines[i] = static_cast<A>(sc.cos);
    }
    for (int64_t head = 0; head < a.heads; ++head) {
      const T* x = place_of<T>(a.x, b, t) + head * a.x.head;
      T* y = place_of<T>(a.y, b, t) + head * a.y.head;
      const int64_t first = a.first_pair;
      turn(x + first, x + half + first, cosines, sines, a.pairs, y + first, y + half + first);
      if (a.copy_rest) {
#pragma omp simd
        for (int64_t i = a.rotary_dims; i < a.width; ++i) y[i] = x[i];
      }
    }
  }
}

}  // namespace
}  // namespace ZPP_ISA

ZPP_DEFINE_SIMD(RopeSimd, {rotate<float>, rotate<bf16>, rotate<double>})

}  // namespace zpp::kernels
