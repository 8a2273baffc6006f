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
  EXPECT_LE(worst_error([](float x) { return log_f32(x); }, [](double x) { return std::log(x); },
                        0.0f, std::numeric_limits<float>::max()),
            1.5e-7);
}

/// The same with `extra` to be tolerated for each |x|^power: at most 1 when within.
template <class Got, class Want>
double worst_share(const Got& got, const Want& want, float low, float high, double bound,
                   double extra, int power) {
  const auto scaled = [=](double x) { return bound + extra * std::pow(std::abs(x), power); };
  constexpr int kSteps = 400000;
  double worst = 0;
  for (int i = 0; i <= kSteps; ++i) {
    const float x = low + (high - low) * static_cast<float>(i) / kSteps;
    const double exact = want(static_cast<double>(x));
    const double error = std::abs(static_cast<double>(got(x)) - exact) / exact;
    worst = std::max(worst, error / scaled(x));
  }
  return worst;
}

TEST(SimdMath, KeepsTheBoundsOfTheSplitExponential) {
  const auto power = [](float w) {
    const PowerOf2<float> e = exp2_f32(w);
    return e.fraction * e.scale;
  };
  EXPECT_LE(worst_share(
                power, [](double w) { return std::exp2(w); }, -126, 127, 2e-7, 0, 0),
            1);
  EXPECT_LE(worst_share([](float x) { return exp_negative(x); },
                        [](double x) { return std::exp(x); }, -87, 0, 2e-7, 1e-7, 1),
            1);
  EXPECT_LE(worst_share([](float w) { return one_plus_exp2(w); },
                        [](double w) { return 1 + std::exp2(w); }, -127, 127, 2.5e-7, 0, 0),
            1);
}

TEST(SimdMath, KeepsTheBoundsOfTheNormalDistribution) {
  const auto bell = [](float a) { return normal_bell(a); };
  const auto above = [](float a) { return normal_above(a, normal_bell(a)); };
  EXPECT_LE(worst_share(
                bell, [](double a) { return std::exp(-a * a / 2); }, 0, 13, 2e-7, 1e-7, 2),
            1);
  EXPECT_LE(worst_share(
                above, [](double a) { return std::erfc(a * std::sqrt(0.5)) / 2; }, 0, 13, 5.7e-7,
                1e-7, 2),
            1);
}

TEST(SimdMath, TheSplitExponentialIsRightAtTheEnds) {
  EXPECT_EQ(exp_negative(-kInf), 0.0f);
  EXPECT_EQ(exp_negative(0.0f), 1.0f);
  EXPECT_EQ(one_plus_exp2(-kInf), 1.0f);
  EXPECT_EQ(one_plus_exp2(128.0f), kInf);
  EXPECT_EQ(one_plus_exp2(kInf), kInf);
  EXPECT_EQ(normal_above(kNormalEnd, normal_bell(kNormalEnd)), 0.0f);
  EXPECT_NEAR(normal_above(0.0f, normal_bell(0.0f)), 0.5f, 3e-7f);
}

TEST(SimdMath, IsRightAtTheEnds) {
  EXPECT_EQ(exp_f32(-kInf), 0.0f);
  EXPECT_EQ(exp_f32(-200.0f), 0.0f);
  EXPECT_EQ(exp_f32(0.0f), 1.0f);
  EXPECT_EQ(exp_f32(88.73f), kInf);
  EXPECT_EQ(exp_f32(kInf), kInf);
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
  EXPECT_TRUE(std::isnan(exp_negative(nan)));
  EXPECT_TRUE(std::isnan(one_plus_exp2(nan)));
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
