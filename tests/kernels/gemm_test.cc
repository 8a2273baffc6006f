#include "kernels/gemm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/runtime.h"
#include "kernels/cpu/gemm_simd.h"
#include "tests/kernels/gemm_cases.h"

namespace zpp::kernels {
namespace {

using ::testing::HasSubstr;

TEST(Gemm, EqualsTheReferenceForEveryShapeStrideAndType) {
  for (const GemmShape& shape : gemm_shapes()) run_op_case(gemm_case(shape));
}

TEST(Gemm, OurOwnKernelEqualsTheReferenceInF32) {
  // Through the stream f32 goes to the library, so this calls the kernel itself.
  Runtime runtime({.device = {}, .threads = 1});
  const GemmSimd& own = simd<GemmSimd>(dynamic_cast<CpuStream&>(runtime.compute()));
  const std::vector<float> a = {1, 2, 3, 4, 5, 6}, b = {1, 0, -1, 2, 3, 1};
  std::vector<float> c(4, 100.0f);
  const Tensor scratch = runtime.tensor({own.scratch_bytes}, DType::kU8);
  const GemmProblem p{.a = a.data(),
                      .b = b.data(),
                      .bias = nullptr,
                      .c = c.data(),
                      .m = 2,
                      .n = 2,
                      .k = 3,
                      .a_m = 3,
                      .a_k = 1,
                      .b_k = 2,
                      .b_n = 1,
                      .c_m = 2,
                      .accumulate = true};
  own.tile(p, {0, 2, 0, 2}, scratch.view().data);
  EXPECT_EQ(c, (std::vector<float>{108, 107, 117, 116}));
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
