#include "kernels/cpu/cross_entropy_simd.h"

#include "kernels/cpu/simd_loops.h"

namespace zpp::kernels {
namespace ZPP_ISA {
namespace {

/// NaNs are passed over: they make the sum NaN instead.
template <class A>
ZPP_INLINE A max_of(const A* x, int64_t n) {
  const int64_t q = n / 4;
  A m0 = -__builtin_inff(), m1 = m0, m2 = m0, m3 = m0;
#pragma omp simd reduction(max : m0, m1, m2, m3)
  for (int64_t i = 0; i < q; ++i) {
    m0 = x[i] > m0 ? x[i] : m0;
    m1 = x[q + i] > m1 ? x[q + i] : m1;
    m2 = x[2 * q + i] > m2 ? x[2 * q + i] : m2;
    m3 = x[3 * q + i] > m3 ? x[3 * q + i] : m3;
  }
  for (int64_t i = 4 * q; i < n; ++i) m0 = x[i] > m0 ? x[i] : m0;
  m0 = m1 > m0 ? m1 : m0;
  m2 = m3 > m2 ? m3 : m2;
  return m2 > m0 ? m2 : m0;
}

/// One pass over memory: the maximum of a piece, then its sum while the piece is in the first-level
/// cache; when a piece raises the maximum, the sum so far shrinks by exp(old - new).
template <class A>
RowSum sum(const void* logits, int64_t n) {
  constexpr int64_t kPiece = 2048;
  const auto* x = static_cast<const A*>(logits);
  A max = -__builtin_inff();
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += kPiece) {
    const A* piece = x + begin;
    const int64_t count = n - begin < kPiece ? n - begin : kPiece;
    const A piece_max = max_of(piece, count);
    if (piece_max > max) {
      total *= __builtin_exp(static_cast<double>(max) - static_cast<double>(piece_max));
      max = piece_max;
    }
    // Until a logit above -inf comes, exp(-inf - 0) gives the zeros that exp(-inf + inf) would not.
    const A shift = max > -__builtin_inff() ? max : A{0};
    A piece_sum = 0;
    // One sum is enough here: the exponential takes longer than the addition waits.
#pragma omp simd reduction(+ : piece_sum)
    for (int64_t i = 0; i < count; ++i) piece_sum += exp_of(piece[i] - shift);
    total += piece_sum;
  }
  return {max, total};
}

template <class A, class To>
void gradient(const void* logits, const RowSum& row, double scale, void* dlogits, int64_t n) {
  const auto* x = static_cast<const A*>(logits);
  const A max = static_cast<A>(row.max);
  const A factor = static_cast<A>(scale / row.sum);
  put_each(static_cast<To*>(dlogits), false, 0, n,
           [=](int64_t i) { return factor * exp_of(x[i] - max); });
}

}  // namespace
}  // namespace ZPP_ISA

ZPP_DEFINE_SIMD(CrossEntropySimd, {sum<float>, nullptr, sum<double>},
                {gradient<float, float>, gradient<float, bf16>, gradient<double, double>})

}  // namespace zpp::kernels
