// What block quantization is good for: its errors, and what it keeps.
#include <gtest/gtest.h>

#include "tests/kernels/quantize_reference.h"

namespace zpp::kernels {
namespace {

Packed quantized(const Floats& x, const QuantFormat& format, const Variant& variant = {},
                 const RngKey& key = {}) {
  return quantized(best_isa(), x.data(), static_cast<int64_t>(x.size()), format, variant, key);
}
Floats dequantized(const Packed& from, size_t n, const QuantFormat& format, bool hadamard = false) {
  Floats out(n);
  const Coded source = from.coded();
  dequantize(best_isa(), {.sources = &source,
                          .n = static_cast<int64_t>(n),
                          .format = format,
                          .hadamard = hadamard,
                          .out = out.data()});
  return out;
}
Floats round_trip(const Floats& x, const QuantFormat& format, const Variant& variant = {},
                  const RngKey& key = {}) {
  return dequantized(quantized(x, format, variant, key), x.size(), format, variant.hadamard);
}

double relative_error(const Floats& x, const Floats& y) {
  double error = 0, all = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    error += (double{x[i]} - y[i]) * (double{x[i]} - y[i]);
    all += double{x[i]} * x[i];
  }
  return std::sqrt(error / all);
}

Floats normal_numbers(int64_t n, uint64_t seed) {
  Floats x;
  for (uint64_t i = 0; i < static_cast<uint64_t>(n) / 4; ++i) {
    const auto words = RngKey{seed, 0, 0}.block(i);
    for (size_t k = 0; k < 4; k += 2) {
      for (float z : normal_pair(words[k], words[k + 1])) x.push_back(z);
    }
  }
  return x;
}

TEST(Quantize, HasTheErrorOfTheoryForNormalNumbers) {
  const Floats x = normal_numbers(1 << 20, 1);
  constexpr int64_t kBlocks[] = {64, 128, 256, 512, 1024, 2048, 4096};
  constexpr double kInt8[] = {.00593, .00646, .00697, .00743, .00788, .00829, .00869};
  constexpr double kInt4[] = {.1076, .1173, .1263, .1349, .1429, .1503, .1576};
  for (size_t i = 0; i < std::size(kBlocks); ++i) {
    const int64_t block = kBlocks[i];
    EXPECT_NEAR(relative_error(x, round_trip(x, {8, block})) / kInt8[i], 1, 0.03) << block;
    EXPECT_NEAR(relative_error(x, round_trip(x, {4, block})) / kInt4[i], 1, 0.03) << block;
  }
}

TEST(Quantize, HasTheErrorOfTheoryForOutliersAndLessWithATransform) {
  // Student's t with three degrees of freedom.
  const Floats z = normal_numbers(1 << 22, 2);
  Floats x;
  for (size_t i = 0; i < z.size(); i += 4) {
    const float squares = z[i + 1] * z[i + 1] + z[i + 2] * z[i + 2] + z[i + 3] * z[i + 3];
    x.push_back(z[i] * std::sqrt(3 / squares));
  }
  // The mean of squares that is held against it converges slowly.
  constexpr double kTolerance = 0.1;
  const auto error = [&](int bits, int64_t block, bool hadamard) {
    return relative_error(x, round_trip(x, {bits, block}, {.hadamard = hadamard}));
  };
  EXPECT_NEAR(error(8, 256, false) / .018, 1, kTolerance);
  EXPECT_NEAR(error(8, 2048, false) / .035, 1, kTolerance);
  EXPECT_NEAR(error(4, 128, false) / .224, 1, kTolerance);
  EXPECT_NEAR(error(4, 2048, false) / .464, 1, kTolerance);
  EXPECT_NEAR(error(4, 128, true) / .116, 1, kTolerance);
  EXPECT_NEAR(error(4, 2048, true) / .189, 1, kTolerance);
}

TEST(Quantize, GivesTheSameCodesForWhatWasDecoded) {
  for (const QuantFormat& format :
       {QuantFormat{8, 64}, QuantFormat{4, 64}, QuantFormat{8, 2048}, QuantFormat{4, 128}}) {
    const Floats x = made<float>(40'000, 8);
    const Packed once = quantized(x, format);
    const Floats y = dequantized(once, x.size(), format);
    EXPECT_EQ(quantized(y, format).codes, once.codes);
    for (uint64_t seed = 0; seed < 20; ++seed) {
      EXPECT_EQ(quantized(y, format, {.random = true}, {seed, 0, 0}).codes, once.codes);
    }
  }
}

TEST(Quantize, KeepsWholeNumbersOfTheLargest) {
  // What a mean of ranks needs: a block of one number decodes to it.
  for (int bits : {8, 4}) {
    for (float value : {1.0f, 2.0f, 3.0f, 6.0f, 10.0f, 15.0f, 21.0f, 28.0f, 36.0f, -5.0f}) {
      const Floats x(300, value);
      EXPECT_EQ(round_trip(x, {bits, 128}), x) << value;
      EXPECT_EQ(round_trip(x, {bits, 128}, {.random = true}), x) << value;
    }
  }
}

TEST(Quantize, RoundsUpAsOftenAsItShould) {
  // The mean over many keys is the number, within five standard deviations.
  constexpr int kKeys = 2000;
  for (const QuantFormat& format : {QuantFormat{8, 32}, QuantFormat{4, 32}}) {
    // The scale is 1.
    const auto q = static_cast<float>(largest_code(format));
    Floats x = {q};
    for (uint64_t i = 1; i < 32; ++i) x.push_back((uniform_from_bits(RngKey{}.bits(i)) - 0.5f) * q);
    std::vector<double> sum(x.size());
    for (uint64_t seed = 0; seed < kKeys; ++seed) {
      const Floats y = round_trip(x, format, {.random = true}, {seed, 7, 0});
      for (size_t i = 0; i < y.size(); ++i) sum[i] += y[i];
    }
    double all = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double off = sum[i] / kKeys - x[i];
      EXPECT_LT(std::abs(off), 5 * 0.5 / std::sqrt(kKeys)) << i;
      all += off;
    }
    EXPECT_LT(std::abs(all / 32), 5 * 0.5 / std::sqrt(kKeys * 32.0));
  }
}

TEST(Quantize, DrawsByKeyAndElementOnly) {
  const QuantFormat format{4, 64};
  const RngKey key{1, 2, 3};
  const Floats x = made<float>(6400, 4);
  const Packed whole = quantized(x, format, {.random = true, .first = 1000}, key);
  for (int64_t begin = 0; begin < 6400; begin += 640) {
    const Floats part(x.begin() + begin, x.begin() + begin + 640);
    const Packed got = quantized(part, format, {.random = true, .first = 1000 + begin}, key);
    EXPECT_TRUE(std::equal(got.codes.begin(), got.codes.end(), whole.codes.begin() + begin / 2));
  }
  EXPECT_NE(quantized(x, format, {.random = true, .first = 1001}, key).codes, whole.codes);
  EXPECT_NE(quantized(x, format, {.random = true, .first = 1000}, {1, 4, 3}).codes, whole.codes);
}

TEST(Quantize, KeepsTheSmallestAndLargestNumbers) {
  for (const QuantFormat& format : {QuantFormat{8, 64}, QuantFormat{4, 64}}) {
    for (float size : {1e-30f, 1e-35f, 1.0f, 65536.0f, 1e38f, 3e38f, kLargest}) {
      for (bool hadamard : {false, true}) {
        // The error of a transform spreads, and may carry the largest numbers beyond f32.
        if (hadamard && (size < 1e-33f || size > 1e38f)) continue;
        for (bool random : {false, true}) {
          Floats x(200, 1.0f);
          for (size_t i = 0; i < x.size(); i += 3) x[i] = -1.0f;
          Floats y = x;
          for (float& v : y) v *= size;
          y = round_trip(y, format, {.hadamard = hadamard, .random = random});
          for (float& v : y) v /= size;
          ASSERT_LT(relative_error(x, y), hadamard ? 0.35 : 1e-6) << size << hadamard << random;
        }
      }
    }
    const std::vector<bf16> half(100, to_bf16(3e38f));
    const Packed coded = quantized(best_isa(), half.data(), 100, format, {}, {});
    for (float y : dequantized(coded, 100, format)) ASSERT_NEAR(y / 3e38f, 1, 0.004);
  }
}

TEST(Quantize, TakesTinyBlocksForZero) {
  Floats x(192, 0.0f);
  for (size_t i = 64; i < 128; ++i) x[i] = 0x1p-120f;
  for (size_t i = 128; i < 192; ++i) x[i] = 0x1p-119f;
  const Packed coded = quantized(x, {8, 64});
  EXPECT_EQ(coded.scales[0], 0);
  EXPECT_EQ(coded.scales[1], 0);
  EXPECT_EQ(coded.codes[64], std::byte{0});
  EXPECT_EQ(coded.codes[128], std::byte{127});
  const Floats y = dequantized(coded, x.size(), {8, 64});
  EXPECT_EQ(y[64], 0);
  EXPECT_EQ(y[128], x[128]);
}

template <class T>
void check_nonfinite(float bad, const QuantFormat& format, const Variant& variant) {
  std::vector<T> x(500, rounded<T>(1.0f));
  for (size_t where : {size_t{0}, size_t{37}, size_t{127}, size_t{300}, size_t{499}}) {
    const T before = x[where];
    x[where] = rounded<T>(bad);
    const Packed coded = quantized(best_isa(), x.data(), 500, format, variant, {});
    const Floats y = dequantized(coded, 500, format, variant.hadamard);
    for (size_t i = 0; i < y.size(); ++i) {
      const bool same_block = i / 128 == where / 128;
      ASSERT_EQ(std::isnan(y[i]), same_block) << bad << " at " << where << ": " << i;
    }
    std::vector<bf16> half(500);
    const Coded source = coded.coded();
    dequantize(best_isa(), {.sources = &source,
                            .n = 500,
                            .format = format,
                            .hadamard = variant.hadamard,
                            .out = half.data(),
                            .out_dtype = DType::kBF16});
    ASSERT_TRUE(std::isnan(to_f32(half[where])));
    x[where] = before;
  }
}

TEST(Quantize, DecodesABlockWithInfOrNaNToNaN) {
  for (float bad : {kInf, -kInf, kNaN, -kNaN}) {
    for (int bits : {8, 4}) {
      for (bool hadamard : {false, true}) {
        for (bool random : {false, true}) {
          check_nonfinite<float>(bad, {bits, 128}, {hadamard, random});
          check_nonfinite<bf16>(bad, {bits, 128}, {hadamard, random});
        }
      }
    }
  }
}

TEST(Quantize, RefusesWhatItCannotCode) {
  float x = 0, scale = 0;
  std::byte code{};
  const Coded source{&code, &scale};
  const Quantize fine{.from = &x, .n = 1, .codes = &code, .scales = &scale};
  EXPECT_NO_THROW(quantize(best_isa(), fine));
  for (const QuantFormat& wrong :
       {QuantFormat{5, 64}, QuantFormat{8, 0}, QuantFormat{8, 33}, QuantFormat{4, 16416}}) {
    Quantize args = fine;
    args.format = wrong;
    EXPECT_THROW(quantize(best_isa(), args), Error);
    EXPECT_THROW(dequantize(best_isa(), {.sources = &source, .n = 1, .format = wrong, .out = &x}),
                 Error);
    Requantize again{.sources = &source, .n = 1, .codes = &code, .scales = &scale};
    again.to_format = wrong;
    EXPECT_THROW(requantize(best_isa(), again), Error);
  }
  Quantize args = fine;
  args.dtype = DType::kF64;
  EXPECT_THROW(quantize(best_isa(), args), Error);
  args = fine;
  args.n = -1;
  EXPECT_THROW(quantize(best_isa(), args), Error);
  EXPECT_THROW(dequantize(best_isa(), {.sources = &source, .count = 0, .n = 1, .out = &x}), Error);
}

}  // namespace
}  // namespace zpp::kernels
