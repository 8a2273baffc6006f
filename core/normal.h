// Normal random numbers from random words, in f32 arithmetic whose every bit is prescribed: the same
// function serves numbers and vectors of any instruction set, and all of them agree.
#pragma once

#include <cstdint>

namespace zpp {

template <class F>
struct NormalPair {
  F first, second;
};

/// Two independent standard normal numbers from two random words, by Box-Muller:
/// sqrt(-2 log u) * (cos v, sin v) with u = (first + 1/2) / 2^32, v = 2 pi second / 2^32.
///
/// `Ops` has types F of f32, U of uint32_t and I of int32_t (numbers or vectors), and functions
/// fma, sqrt, to_float (of U and of I), to_bits, from_bits, to_signed, to_unsigned. The only roundings are those
/// of IEEE additions, multiplications, square roots and conversions: products that are added go
/// through fma, so that no compiler can choose. Internal linkage, for the reason that
/// kernels/cpu/isa.h gives.
/// Units:   absolute error at most 1.2e-6 where the radius sqrt(-2 log u) is above 0.1; below, u close
///          to 1 is rounded to f32, which moves the radius by min(6e-8 / radius, 2.5e-4)
template <class Ops>
static inline __attribute__((always_inline)) NormalPair<typename Ops::F> normal_pair_of(
    typename Ops::U first, typename Ops::U second) {
  using F = typename Ops::F;
  using U = typename Ops::U;
  using I = typename Ops::I;
  const auto constant = [](float x) { return F{} + x; };
  const auto horner = [&](F p, F x, float c) { return Ops::fma(p, x, constant(c)); };

  // log(first + 1/2) - 32 log(2), with the mantissa in [sqrt(1/2), sqrt(2)).
  const U u = Ops::to_bits(Ops::to_float(first) + 0.5f);
  const I n = Ops::to_signed(u - 0x3f3504f3u) >> 23;
  const F f = Ops::from_bits(u - Ops::to_unsigned(n << 23)) - 1.0f;
  F p = constant(0.0870026425f);
  p = horner(p, f, -0.142674625f);
  p = horner(p, f, 0.149148107f);
  p = horner(p, f, -0.16577588f);
  p = horner(p, f, 0.199630603f);
  p = horner(p, f, -0.250013381f);
  p = horner(p, f, 0.333339095f);
  p = horner(p, f, -0.5f);
  const F log1p = Ops::fma(f * f, p, f);
  const F log_u = Ops::fma(Ops::to_float(n - 32), constant(0.693147182f), log1p);
  const F radius = Ops::sqrt(log_u * -2.0f);

  // The nearest quarter turn q, and the angle from there.
  const U q = (second + 0x20000000u) >> 30;
  const F r = Ops::to_float(Ops::to_signed(second - (q << 30))) * 1.46291808e-9f;  // 2 pi / 2^32
  const F z = r * r;
  F s = constant(-0.00019515281f);
  s = horner(s, z, 0.0083321603f);
  s = horner(s, z, -0.166666552f);
  s = Ops::fma(r * z, s, r);
  F c = constant(2.44384464e-05f);
  c = horner(c, z, -0.00138873677f);
  c = horner(c, z, 0.0416666456f);
  c = Ops::fma(z * z, c, horner(z, constant(-0.5f), 1.0f));
  const auto odd = (q & 1u) != 0u;
  const F sine = odd ? c : s;
  const F cosine = odd ? s : c;
  const U sine_sign = (q & 2u) << 30;
  const U cosine_sign = ((q + 1u) & 2u) << 30;
  return {radius * Ops::from_bits(Ops::to_bits(cosine) ^ cosine_sign),
          radius * Ops::from_bits(Ops::to_bits(sine) ^ sine_sign)};
}

}  // namespace zpp
