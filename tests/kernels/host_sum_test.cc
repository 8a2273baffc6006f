#include "kernels/host_sum.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/rng.h"

namespace zpp::kernels {
namespace {

const std::vector<Isa> kIsas = [] {
  std::vector<Isa> isas = {Isa::kAvx2};
  if (best_isa() == Isa::kAvx512) isas.push_back(Isa::kAvx512);
  return isas;
}();

template <class T>
T made(uint32_t bits) {
  if constexpr (std::is_same_v<T, bf16>) {
    return to_bf16(uniform_from_bits(bits) - 0.5f);
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(bits) - (1 << 30);
  } else {
    return static_cast<T>(uniform_from_bits(bits)) - T{0.5};
  }
}

template <class T>
std::vector<std::vector<T>> sources(int count, int64_t n) {
  std::vector<std::vector<T>> all(static_cast<size_t>(count));
  for (size_t k = 0; k < all.size(); ++k) {
    const RngKey key{1, k, 0};
    for (int64_t i = 0; i < n; ++i) all[k].push_back(made<T>(key.bits(static_cast<uint64_t>(i))));
  }
  return all;
}

/// In the order that the header promises; Sum is what numbers are added in.
template <class T, class To, class Sum>
To reference(const std::vector<std::vector<T>>& all, size_t i, HostReduction reduction,
             double scale) {
  const auto value = [&](size_t k) {
    if constexpr (std::is_same_v<T, bf16>) {
      return to_f32(all[k][i]);
    } else {
      return static_cast<Sum>(all[k][i]);
    }
  };
  Sum sum = value(0);
  for (size_t k = 1; k < all.size(); ++k) {
    sum = reduction == HostReduction::kMax ? std::max(sum, value(k))
                                           : static_cast<Sum>(sum + value(k));
  }
  if constexpr (std::is_integral_v<T>) {
    return sum;
  } else {
    sum = static_cast<Sum>(scale) * sum;
    if constexpr (std::is_same_v<To, bf16>) {
      return to_bf16(sum);
    } else {
      return sum;
    }
  }
}

template <class T>
bool same_bits(const T& a, const T& b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

template <class T, class To, class Sum>
void check(double scale) {
  for (Isa isa : kIsas) {
    for (int count : {1, 2, 3, 8}) {
      for (int64_t n : {0, 1, 31, 1027}) {
        for (HostReduction reduction : {HostReduction::kSum, HostReduction::kMax}) {
          const auto all = sources<T>(count, n);
          std::vector<const void*> pointers;
          for (const auto& source : all) pointers.push_back(source.data());
          std::vector<To> out(static_cast<size_t>(n));
          host_reduce(isa, {.reduction = reduction,
                            .sources = pointers.data(),
                            .count = count,
                            .dtype = DTypeOf<T>::value,
                            .out = out.data(),
                            .out_dtype = DTypeOf<To>::value,
                            .n = n,
                            .scale = scale});
          for (size_t i = 0; i < out.size(); ++i) {
            const To want = reference<T, To, Sum>(all, i, reduction, scale);
            ASSERT_TRUE(same_bits(out[i], want))
                << to_string(isa) << " " << count << " arrays, element " << i << " of " << n;
          }
        }
      }
    }
  }
}

TEST(HostReduce, AddsInOrderAndRoundsOnceBitForBit) {
  check<float, float, float>(1);
  check<float, float, float>(1.0 / 3);
  check<bf16, bf16, float>(1.0 / 3);
  check<bf16, float, float>(1.0 / 3);
  check<double, double, double>(1.0 / 3);
  check<int32_t, int32_t, int32_t>(1);
  check<int64_t, int64_t, int64_t>(1);
}

TEST(HostReduce, MayWriteOverASource) {
  for (int count : {2, 3}) {
    std::vector<float> a(1000, 1.0f), b(1000, 2.0f), c(1000, 4.0f);
    const void* pointers[] = {a.data(), b.data(), c.data()};
    host_reduce(best_isa(), {.sources = pointers, .count = count, .out = b.data(), .n = 1000});
    for (float x : b) ASSERT_EQ(x, count == 2 ? 3.0f : 7.0f);
  }
}

TEST(HostReduce, KeepsNaNInSumsAndMaxima) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (HostReduction reduction : {HostReduction::kSum, HostReduction::kMax}) {
    for (int where : {0, 1, 2}) {
      std::vector<float> values(3, 1.0f);
      values[static_cast<size_t>(where)] = nan;
      const void* pointers[] = {&values[0], &values[1], &values[2]};
      float out = 0;
      host_reduce(best_isa(),
                  {.reduction = reduction, .sources = pointers, .count = 3, .out = &out, .n = 1});
      EXPECT_TRUE(std::isnan(out));
    }
  }
}

TEST(HostReduce, RefusesWhatItCannotReduce) {
  float x = 0;
  const void* pointers[] = {&x};
  const HostReduce fine{.sources = pointers, .count = 1, .out = &x, .n = 1};
  HostReduce wrong = fine;
  wrong.count = 0;
  EXPECT_THROW(host_reduce(best_isa(), wrong), Error);
  wrong = fine;
  wrong.out_dtype = DType::kBF16;
  EXPECT_THROW(host_reduce(best_isa(), wrong), Error);
  wrong = fine;
  wrong.dtype = wrong.out_dtype = DType::kI8;
  EXPECT_THROW(host_reduce(best_isa(), wrong), Error);
  wrong.dtype = wrong.out_dtype = DType::kI32;
  wrong.scale = 0.5;
  EXPECT_THROW(host_reduce(best_isa(), wrong), Error);
}

}  // namespace
}  // namespace zpp::kernels
