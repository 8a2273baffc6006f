#include "kernels/gemm.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "core/rng.h"
#include "core/runtime.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/gemm_onednn.h"
#include "kernels/cpu/gemm_packed.h"
#include "tests/kernels/gemm_cases.h"

namespace zpp::kernels {
namespace {

using ::testing::HasSubstr;

TEST(Gemm, EqualsTheReferenceForEveryShapeStrideAndType) {
  for (const GemmShape& shape : gemm_shapes()) run_op_case(gemm_case(shape));
}

/// An f32 product by one of the two ways that a stream chooses from.
using Multiply = std::function<void(Runtime&, const cpu::GemmBatch&)>;

void multiply_ours(Runtime& runtime, const cpu::GemmBatch& batch) {
  cpu::ScratchMemory scratch;
  cpu::multiply_packed(runtime.workers(), batch,
                       simd<GemmSimd>(dynamic_cast<CpuStream&>(runtime.compute())), scratch);
}

void multiply_by_library(Runtime& runtime, const cpu::GemmBatch& batch) {
  cpu::OnednnGemm library;
  ASSERT_TRUE(library.multiply(runtime.workers(), batch));
}

/// The largest difference to sums in f64, over the sum of absolute terms. Rows of a and of c are
/// dense; columns of b are where `b_transposed`.
double error_of(const Multiply& multiply, int64_t m, int64_t n, int64_t k, bool b_transposed,
                int threads, bool accumulate = true) {
  Runtime runtime({.device = {}, .threads = threads});
  const auto value = [](int64_t seed, int64_t i) {
    return static_cast<float>(mix_hash(static_cast<uint64_t>(seed), static_cast<uint64_t>(i)) >>
                              40) *
               0x1p-23f -
           1.0f;
  };
  std::vector<float> a(static_cast<size_t>(m * k)), b(static_cast<size_t>(k * n));
  const Tensor out = runtime.tensor({m * n}, DType::kF32);  // aligned for whole vectors
  float* const c = out.view().as<float>();
  std::fill_n(c, m * n, 0.5f);
  for (int64_t i = 0; i < m * k; ++i) a[static_cast<size_t>(i)] = value(1, i);
  for (int64_t i = 0; i < k * n; ++i) b[static_cast<size_t>(i)] = value(2, i);
  cpu::GemmBatch batch;
  batch.first = {.a = a.data(),
                 .b = b.data(),
                 .bias = nullptr,
                 .c = c,
                 .m = m,
                 .n = n,
                 .k = k,
                 .a_m = k,
                 .a_k = 1,
                 .b_k = b_transposed ? 1 : n,
                 .b_n = b_transposed ? k : 1,
                 .c_m = n,
                 .accumulate = accumulate};
  multiply(runtime, batch);
  double worst = 0;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = accumulate ? 0.5 : 0.0, size = 0.5;
      for (int64_t t = 0; t < k; ++t) {
        const double term =
            static_cast<double>(a[static_cast<size_t>(i * k + t)]) *
            static_cast<double>(b[static_cast<size_t>(b_transposed ? j * k + t : t * n + j)]);
        sum += term;
        size += std::abs(term);
      }
      worst = std::max(worst, std::abs(static_cast<double>(c[i * n + j]) - sum) / size);
    }
  }
  return worst;
}

// A stream takes one of the two, by CPU: this calls both on any.
TEST(Gemm, OurProductAndTheLibrarysEqualTheReferenceInF32) {
  for (int threads : {1, 3}) {
    for (bool b_transposed : {false, true}) {
      for (const auto& [m, n, k] : {std::array<int64_t, 3>{2, 2, 3},
                                    {7, 300, 40},
                                    {300, 7, 40},
                                    {95, 97, 1100},
                                    {64, 17, 2500}}) {
        SCOPED_TRACE(fmt::format("{} x {} x {} on {} threads", m, n, k, threads));
        EXPECT_LT(error_of(multiply_ours, m, n, k, b_transposed, threads), 1e-6);
        EXPECT_LT(error_of(multiply_by_library, m, n, k, b_transposed, threads), 1e-6);
      }
    }
  }
}

TEST(Gemm, OurProductStoresLargeOutputsPastTheCaches) {
  // From 4 MiB on; 1030 rows do not fill the last block, 1028 columns start off the vectors.
  for (int64_t n : {1024, 1028}) {
    EXPECT_LT(error_of(multiply_ours, 1030, n, 8, false, 2, /*accumulate=*/false), 1e-6) << n;
  }
}

TEST(Gemm, WritesInsideASliceOnly) {
  Runtime runtime({.device = {}, .threads = 2});
  Stream& stream = runtime.compute();
  const Tensor a = runtime.tensor({3, 4}, DType::kF32), b = runtime.tensor({4, 2}, DType::kF32);
  const Tensor c = runtime.tensor({3, 6}, DType::kF32);
  copy_from_host(stream, std::vector<float>(12, 1.0f), a.view());
  copy_from_host(stream, std::vector<float>(8, 2.0f), b.view());
  copy_from_host(stream, std::vector<float>(18, 7.0f), c.view());
  gemm(stream, {.a = a.view(), .b = b.view(), .bias = {}, .c = {c.view().slice(1, 2, 4)}});
  std::vector<float> want;
  for (int row = 0; row < 3; ++row) want.insert(want.end(), {7, 7, 8, 8, 7, 7});
  EXPECT_EQ(copy_to_host<float>(stream, c.view()), want);
}

class GemmArguments : public ::testing::Test {
 protected:
  Tensor make(const Shape& shape, DType dtype = DType::kF32) {
    return runtime_.tensor(shape, dtype);
  }

  std::string complaint(const Gemm& args, Code wanted = Code::kInvalidArgument) {
    try {
      gemm(runtime_.compute(), args);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), wanted);
      return error.what();
    }
    return "";
  }

  Runtime runtime_{{.device = {}, .threads = 1}};
};

TEST_F(GemmArguments, AreRefusedWithShapesNamed) {
  const Tensor a = make({2, 3}), b = make({4, 5}), b3 = make({3, 5}), c = make({2, 5});
  const Tensor wrong_c = make({5, 2}), bias = make({4});
  EXPECT_THAT(complaint({.a = a.view(), .b = b.view(), .bias = {}, .c = {c.view()}}),
              HasSubstr("a is (2, 3) and b is (4, 5)"));
  EXPECT_THAT(complaint({.a = a.view(), .b = b3.view(), .bias = {}, .c = {wrong_c.view()}}),
              HasSubstr("c is (5, 2) but should be (2, 5)"));
  EXPECT_THAT(complaint({.a = a.view(), .b = b3.view(), .bias = bias.view(), .c = {c.view()}}),
              HasSubstr("bias is (4) but should be (5)"));
}

TEST_F(GemmArguments, AreRefusedWithTypesNamed) {
  const Tensor a = make({2, 3}), b = make({3, 5}, DType::kBF16), bf = make({3, 5});
  const Tensor c = make({2, 5}), c_bf16 = make({2, 5}, DType::kBF16);
  EXPECT_THAT(complaint({.a = a.view(), .b = b.view(), .bias = {}, .c = {c.view()}}),
              HasSubstr("b is bf16 but should be f32"));
  EXPECT_THAT(complaint({.a = a.view(), .b = bf.view(), .bias = {}, .c = {c_bf16.view()}}),
              HasSubstr("c is bf16 but should be f32"));
}

TEST_F(GemmArguments, NeedADenseDimension) {
  const Tensor a = make({2, 3, 2}), b = make({3, 5}), c = make({2, 5});
  EXPECT_THAT(complaint({.a = a.view().select(2, 0), .b = b.view(), .bias = {}, .c = {c.view()}}),
              HasSubstr("strides (6, 2)"));
}

TEST_F(GemmArguments, MustNotBeReleasedParameters) {
  const Tensor a = make({2, 3}), b = make({3, 5}), c = make({2, 5});
  uint32_t generation = 4;
  View w = b.view();
  w.generation = &generation;
  w.seen = 3;
  EXPECT_THAT(
      complaint({.a = a.view(), .b = w, .bias = {}, .c = {c.view()}}, Code::kFailedPrecondition),
      HasSubstr("gemm: b"));
}

TEST(GemmPeak, IsAPlausibleRate) {
  Runtime runtime({.device = {}, .threads = 1});
  const Tensor scratch = runtime.tensor({gemm_peak_scratch_bytes(DType::kF32)}, DType::kU8);
  const double peak = measure_gemm_peak(runtime.compute(), DType::kF32, scratch.view());
  EXPECT_GT(peak, 1e8);
  EXPECT_LT(peak, 1e14);
}

}  // namespace
}  // namespace zpp::kernels
