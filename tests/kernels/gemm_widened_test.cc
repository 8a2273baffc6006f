// The path of CPUs without bf16 arithmetic, forced on any CPU: a program of its own, because the
// library fixes its instruction set at the first product.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <oneapi/dnnl/dnnl.hpp>

#include "core/runtime.h"
#include "kernels/gemm.h"
#include "tests/kernels/gemm_cases.h"

namespace zpp::kernels {
namespace {

using ::testing::HasSubstr;

class GemmWidened : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    ASSERT_EQ(dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx2), dnnl::status::success);
  }
};

TEST_F(GemmWidened, SaysSo) {
  Runtime runtime({.device = {}, .threads = 1, .isa = Isa::kAvx2});
  EXPECT_EQ(gemm_path(runtime.compute(), DType::kF32), "zpp f32 avx2");
  EXPECT_THAT(gemm_path(runtime.compute(), DType::kBF16), HasSubstr("bf16 widened while packing"));
}

TEST_F(GemmWidened, EqualsTheReference) {
  for (const GemmShape& shape : gemm_shapes()) {
    OpCase op = gemm_case(shape);
    op.dtypes = {DType::kF32, DType::kBF16};
    run_op_case(op);
  }
}

TEST_F(GemmWidened, HasTheSameBitsOnAnyNumberOfThreads) {
  OpCase op = gemm_case({.m = 300, .n = 400, .k = 64, .b_transposed = true});
  op.dtypes = {DType::kBF16};
  op.same_bits_on_any_threads = true;
  run_op_case(op);
}

}  // namespace
}  // namespace zpp::kernels
