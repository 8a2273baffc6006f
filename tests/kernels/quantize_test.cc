// Each byte and bit that the quantization kernels write, against their definition.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/kernels/quantize_reference.h"

namespace zpp::kernels {
namespace {

constexpr int64_t kLongest = 4100;

class EveryLength : public testing::TestWithParam<std::tuple<int, DType, int64_t>> {};

template <class T>
void check_encoding(int bits, int64_t block) {
  const QuantFormat format{bits, block};
  const RngKey key{3, 0x123456789abcdef0u, 5};
  constexpr int64_t kFirst = 1'000'000'007;
  const std::vector<T> values = made<T>(kLongest, 1);
  const std::vector<uint16_t> numbers = numbers_of(key, kFirst, kLongest + 8);
  for (int64_t n = 0; n <= kLongest; ++n) {
    const int64_t shift = n % 8;
    const Variant variant{n % 3 == 0, n % 5 < 2, n % 64, kFirst + shift};
    const Packed want = encoded(widened(values, n), format, variant.hadamard,
                                variant.random ? numbers.data() + shift : nullptr);
    for (Isa isa : isas()) {
      ASSERT_TRUE(quantized(isa, values.data(), n, format, variant, key) == want)
          << to_string(isa) << " " << n << " values, hadamard " << variant.hadamard << ", random "
          << variant.random;
    }
  }
}

TEST_P(EveryLength, IsEncodedToTheBytesOfTheDefinition) {
  const auto& [bits, dtype, block] = GetParam();
  dtype == DType::kF32 ? check_encoding<float>(bits, block) : check_encoding<bf16>(bits, block);
}

template <class T>
void check_decoding(int bits, int64_t block) {
  const QuantFormat format{bits, block};
  std::vector<Packed> all;
  for (uint64_t k = 0; k < 3; ++k) {
    all.push_back(encoded(made<float>(kLongest, k), format, false, nullptr));
    // Any code can come, and blocks of NaN.
    for (size_t i = 0; i < 16; ++i) all.back().codes[i] = static_cast<std::byte>(17 * i + k);
    if (all.back().scales.size() > 3) all.back().scales[2 + k % 2] = k == 1 ? kNaN : 0.0f;
  }
  const std::vector<T> before = made<T>(kLongest, 9);
  for (int64_t n = 0; n <= kLongest; ++n) {
    const bool hadamard = n % 3 == 0, accumulate = n % 5 < 2;
    const float scale = n % 7 < 3 ? 1.0f / 3 : 1.0f;
    const std::vector<Packed> sources(all.begin(), all.begin() + 1 + n % 4 * 2 / 3);
    Floats sum = decoded_sum(sources, n, format);
    if (hadamard) sum = transformed(sum, 1, 4);
    for (float& x : sum) x *= scale;
    std::vector<T> want;
    for (size_t i = 0; i < sum.size(); ++i) {
      want.push_back(rounded<T>(accumulate ? widened(before[i]) + sum[i] : sum[i]));
    }
    for (Isa isa : isas()) {
      Guarded<T> out(n, n % 64);
      if (n > 0) std::memcpy(out.data(), before.data(), static_cast<size_t>(n) * sizeof(T));
      std::vector<Guarded<std::byte>> codes;
      std::vector<Coded> coded;
      for (const Packed& source : sources) {
        const int64_t bytes = format.code_bytes(n);
        codes.emplace_back(bytes, (n + static_cast<int64_t>(coded.size())) % 64);
        std::memcpy(codes.back().data(), source.codes.data(), static_cast<size_t>(bytes));
        coded.push_back({codes.back().data(), source.scales.data()});
      }
      dequantize(isa, {.sources = coded.data(),
                       .count = static_cast<int>(coded.size()),
                       .n = n,
                       .format = format,
                       .hadamard = hadamard,
                       .scale = scale,
                       .out = out.data(),
                       .out_dtype = DTypeOf<T>::value,
                       .accumulate = accumulate});
      ASSERT_TRUE(same_values(out.values(), want) && out.intact())
          << to_string(isa) << " " << n << " values of " << coded.size() << " sources";
    }
  }
}

TEST_P(EveryLength, IsDecodedToTheBitsOfTheDefinition) {
  const auto& [bits, dtype, block] = GetParam();
  dtype == DType::kF32 ? check_decoding<float>(bits, block) : check_decoding<bf16>(bits, block);
}

INSTANTIATE_TEST_SUITE_P(Blocks, EveryLength,
                         testing::Combine(testing::Values(8, 4),
                                          testing::Values(DType::kF32, DType::kBF16),
                                          testing::Values(32, 64, 128, 512, 2048)),
                         [](const auto& test) {
                           return fmt::format("{}bits_{}_block{}", std::get<0>(test.param),
                                              to_string(std::get<1>(test.param)),
                                              std::get<2>(test.param));
                         });

TEST(Requantize, HasTheBitsOfDecodingToF32AndEncoding) {
  const RngKey key{4, 5, 6};
  const QuantFormat formats[] = {{8, 32}, {8, 512}, {4, 128}, {4, 2048}, {8, 96}};
  for (int64_t n : {0, 1, 31, 32, 1000, 4100, 5003}) {
    for (const QuantFormat& format : formats) {
      std::vector<Packed> sources;
      std::vector<Coded> coded;
      for (uint64_t k = 0; k < 3; ++k) {
        sources.push_back(encoded(made<float>(n, k), format, false, nullptr));
        if (n > 4000) sources.back().scales[1] = k == 1 ? kNaN : 0.0f;
      }
      for (const Packed& source : sources) coded.push_back(source.coded());
      for (const QuantFormat& to : formats) {
        const bool random = (to.block + format.bits) % 64 != 0;
        const Packed want = encoded(decoded_sum(sources, n, format), to, false,
                                    random ? numbers_of(key, 77, n).data() : nullptr);
        for (Isa isa : isas()) {
          Guarded<std::byte> codes(to.code_bytes(n), 3);
          Guarded<float> scales(to.scales(n), 3);
          requantize(isa, {.sources = coded.data(),
                           .count = 3,
                           .n = n,
                           .format = format,
                           .to_format = to,
                           .rounding = random ? &key : nullptr,
                           .first = 77,
                           .codes = codes.data(),
                           .scales = scales.data()});
          ASSERT_TRUE((Packed{codes.values(), scales.values()} == want)) << n;
          ASSERT_TRUE(codes.intact() && scales.intact()) << n;
        }
      }
    }
  }
}

TEST(Quantize, GivesTheBytesOfTheDefinitionForSpecialValues) {
  const float tiny = std::numeric_limits<float>::denorm_min();
  const Floats special = {0.0f,       -0.0f,  tiny,    -tiny,        1e-40f,   0x1p-120f,
                          -0x1p-119f, 1e-36f, 1e-30f,  -1e-30f,      1e-20f,   0.5f,
                          1.0f,       63.5f,  127.0f,  7.0f,         -3.5f,    2.5f,
                          1e20f,      -3e38f, 3.3e38f, -kLargest,    kLargest, kLargest / 2,
                          kInf,       -kInf,  kNaN,    0x1.fffffep0f};
  for (float a : special) {
    for (float b : special) {
      for (int bits : {8, 4}) {
        for (bool hadamard : {false, true}) {
          Floats x(96, a);
          x[40] = b;
          x[70] = -b;
          for (Isa isa : isas()) {
            const QuantFormat format{bits, 32};
            const Packed want = encoded(x, format, hadamard, nullptr);
            ASSERT_TRUE(quantized(isa, x.data(), 96, format, {.hadamard = hadamard}, {}) == want)
                << a << " " << b;
          }
        }
      }
    }
  }
}

TEST(Dequantize, WritesLargeOutputsPastTheCachesToTheSameBits) {
  // Long enough for that, with a tail; pieces are too short.
  constexpr int64_t kBlock = 2048, kCount = kBlock * 4200 + 45, kPiece = kBlock * 1000;
  const QuantFormat format{8, kBlock};
  Packed from{Bytes(kCount), Floats(static_cast<size_t>(format.scales(kCount)))};
  for (size_t i = 0; i < from.codes.size(); ++i) from.codes[i] = static_cast<std::byte>(i * 7);
  for (size_t i = 0; i < from.scales.size(); ++i) from.scales[i] = static_cast<float>(i);
  const auto check = [&]<class T>(T) {
    Guarded<T> whole(kCount, 0), pieces(kCount, 0);
    const auto decode = [&](T* out, int64_t begin, int64_t n) {
      const Coded source{&from.codes[static_cast<size_t>(begin)],
                         &from.scales[static_cast<size_t>(begin / kBlock)]};
      dequantize(best_isa(), {.sources = &source,
                              .n = n,
                              .format = format,
                              .out = out,
                              .out_dtype = DTypeOf<T>::value});
    };
    decode(whole.data(), 0, kCount);
    for (int64_t begin = 0; begin < kCount; begin += kPiece) {
      decode(pieces.data() + begin, begin, std::min(kPiece, kCount - begin));
    }
    EXPECT_EQ(std::memcmp(whole.data(), pieces.data(), kCount * sizeof(T)), 0);
    EXPECT_TRUE(whole.intact());
  };
  check(float{});
  check(bf16{});
}

}  // namespace
}  // namespace zpp::kernels
