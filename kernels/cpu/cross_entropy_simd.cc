#include "kernels/cpu/cross_entropy_simd.h"

#include "kernels/cpu/simd_loops.h"

namespace zpp::kernels {
namespace ZPP_ISA {
namespace {

/// NaNs are passed over: they make the sum NaN instead.
template <class A>
ZPP_INLINE A max_of_all(const A* x, int64_t n) {
  A max = -__builtin_inff();
  int64_t i = 0;
  if constexpr (sizeof(A) == sizeof(float)) {
    const VF lowest = VF{} + max;
    Block<float> m{{lowest, lowest, lowest, lowest}};
    for (; i + kBlock <= n; i += kBlock) m = max_of(load_block(x + i), m);
    const VF half = larger(larger(m.v[0], m.v[1]), larger(m.v[2], m.v[3]));
    for (int lane = 0; lane < kWidth; ++lane) max = half[lane] > max ? half[lane] : max;
  }
  for (; i < n; ++i) max = x[i] > max ? x[i] : max;
  return max;
}

/// One pass over memory: the maximum of a piece, then its sum while the piece is in the first-level
/// cache; when a piece raises the maximum, the sum so far shrinks by exp(old - new). Instructions
/// for a vector: 14.
template <class A>
RowSum sum_of_row(const void* logits, int64_t n) {
  constexpr int64_t kPiece = 2048;
  const auto* x = static_cast<const A*>(logits);
  A max = -__builtin_inff();
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += kPiece) {
    const A* piece = x + begin;
    const int64_t count = n - begin < kPiece ? n - begin : kPiece;
    const A piece_max = max_of_all(piece, count);
    if (piece_max > max) {
      total *= __builtin_exp(static_cast<double>(max) - static_cast<double>(piece_max));
      max = piece_max;
    }
    // Until a logit above -inf comes, exp(-inf - 0) gives the zeros that exp(-inf + inf) would not.
    const A shift = max > -__builtin_inff() ? max : A{0};
    total += sum<A>(
        count, [=](auto v) ZPP_LAMBDA { return exp_negative(v - shift); }, piece);
  }
  return {max, total};
}

/// Instructions for a vector: 13, for bf16 12 and 8 to round and pack.
template <class A, class To>
void gradient(const void* logits, const RowSum& row, double scale, void* dlogits, int64_t n) {
  const auto* x = static_cast<const A*>(logits);
  auto* dx = static_cast<To*>(dlogits);
  const A max = static_cast<A>(row.max);
  const A factor = static_cast<A>(scale / row.sum);
  const auto f = [=](auto v) ZPP_LAMBDA { return exp_negative(v - max) * factor; };
  if constexpr (sizeof(A) == sizeof(To)) {
    map(dx, Put::kStore, n, f, x);
  } else {
    map_in_order(x, dx, false, n, f);
  }
}

}  // namespace
}  // namespace ZPP_ISA

ZPP_DEFINE_SIMD(CrossEntropySimd, {sum_of_row<float>, nullptr, sum_of_row<double>},
                {gradient<float, float>, gradient<float, bf16>, gradient<double, double>})

}  // namespace zpp::kernels
