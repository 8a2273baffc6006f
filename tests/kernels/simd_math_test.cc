#include "kernels/cpu/simd_math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace zpp::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

/// Largest relative error of `got` over f32 numbers in [low, high], evenly spread over their bits,
/// where the result is a normal number.
template <class Got, class Want>
double worst_error(const Got& got, const Want& want, float low, float high) {
  constexpr uint32_t kStep = 4999;
  double worst = 0;
  for (uint64_t u = 0; u <= std::numeric_limits<uint32_t>::max(); u += kStep) {
    const float x = from_bits(static_cast<uint32_t>(u));
    if (!(x >= low && x <= high)) continue;
    const double exact = want(static_cast<double>(x));
    if (std::abs(exact) < double{std::numeric_limits<float>::min()}) continue;
    worst = std::max(worst, std::abs(static_cast<double>(got(x)) - exact) / std::abs(exact));
  }
  return worst;
}

TEST(SimdMath, KeepsItsErrorBounds) {
  EXPECT_LE(worst_error([](float x) { return exp_f32(x); }, [](double x) { return std::exp(x); },
                        -87.3f, 88.7f),
            1.5e-7);
  EXPECT_LE(worst_error([](float x) { return expm1_f32(x); },
                        [](double x) { return std::expm1(x); }, -80.0f, 80.0f),
            2.5e-7);
  EXPECT_LE(worst_error([](float x) { return erf_f32(x); }, [](double x) { return std::erf(x); },
                        -kInf, kInf),
            3e-7);
  EXPECT_LE(worst_error([](float x) { return log_f32(x); }, [](double x) { return std::log(x); },
                        0.0f, std::numeric_limits<float>::max()),
            1.5e-7);
}

TEST(SimdMath, IsRightAtTheEnds) {
  EXPECT_EQ(exp_f32(-kInf), 0.0f);
  EXPECT_EQ(exp_f32(-200.0f), 0.0f);
  EXPECT_EQ(exp_f32(0.0f), 1.0f);
  EXPECT_EQ(exp_f32(88.73f), kInf);
  EXPECT_EQ(exp_f32(kInf), kInf);
  EXPECT_EQ(erf_f32(-kInf), -1.0f);
  EXPECT_EQ(erf_f32(7.0f), 1.0f);
  EXPECT_EQ(log_f32(0.0f), -kInf);
  EXPECT_EQ(log_f32(-0.0f), -kInf);
  EXPECT_EQ(log_f32(1.0f), 0.0f);
  EXPECT_EQ(log_f32(kInf), kInf);
  EXPECT_TRUE(std::isnan(log_f32(-1.0f)));
  EXPECT_FLOAT_EQ(log_f32(1e-42f), std::log(1e-42f));
}

TEST(SimdMath, HandsOnNaNs) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(exp_f32(nan)));
  EXPECT_TRUE(std::isnan(erf_f32(nan)));
  EXPECT_TRUE(std::isnan(log_f32(nan)));
}

TEST(SimdMath, RoundsToBf16AsTheScalarConversionDoes) {
  constexpr uint32_t kStep = 4093;
  for (uint64_t u = 0; u <= std::numeric_limits<uint32_t>::max(); u += kStep) {
    const float x = from_bits(static_cast<uint32_t>(u));
    ASSERT_EQ(store<bf16>(x).bits, to_bf16(x).bits) << x;
  }
}

}  // namespace
}  // namespace zpp::kernels
