// Dropout and initial weights: what the device draws is what core/rng.h says.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/elementwise.h"
#include "tests/kernels/op_case.h"

namespace zpp::kernels {
namespace {

OpCase dropout_case(int64_t n, float p, const RngKey& key, bool accumulate) {
  OpCase op;
  op.name = fmt::format("dropout {} of {} from {} accumulate {}", p, n, key.offset, accumulate);
  op.inputs = {{.name = "x", .shape = {n}}};
  op.outputs = {{.name = "y", .shape = {n}, .fill = accumulate ? normal() : Fill{}}};
  op.run = [=](Stream& s, const Views& in, const Views& out) {
    dropout(s, {in[0], {out[0], accumulate}, p, key});
  };
  op.reference = [=](const std::vector<Values>& in, std::vector<Values>& out) {
    for (size_t i = 0; i < out[0].size(); ++i) {
      const bool keep = uniform_from_bits(key.bits(i)) >= p;
      out[0][i] = (accumulate ? out[0][i] : 0.0) + (keep ? in[0][i] / (1.0 - double{p}) : 0.0);
    }
  };
  return op;
}

TEST(Dropout, DrawsTheElementsOfItsKey) {
  for (int64_t n : {0, 1, 3, 64, 67, 40001}) {
    // Offsets at and inside a Philox block, and where the counter's low word overflows.
    for (uint64_t offset : {uint64_t{0}, uint64_t{5}, (uint64_t{1} << 34) - 70}) {
      run_op_case(dropout_case(n, 0.3f, {123, 0x123456789abcdef0u, offset}, n == 67));
    }
  }
}

TEST(Dropout, KeepsEverythingAtZero) { run_op_case(dropout_case(100, 0.0f, {1, 2, 3}, false)); }

TEST(Dropout, DropsTheShareAskedForAndKeepsTheMean) {
  Runtime runtime{{.device = {}, .threads = 2}};
  Stream& stream = runtime.compute();
  constexpr int64_t kCount = 200000;
  const Tensor x = runtime.tensor({kCount}, DType::kF32);
  fill(stream, x.view(), 1.0);
  dropout(stream, {x.view(), {x.view()}, 0.1f, {42, 1, 0}});
  double sum = 0, dropped = 0;
  for (float y : copy_to_host<float>(stream, x.view())) {
    sum += y;
    dropped += y == 0 ? 1 : 0;
  }
  // Five standard deviations.
  EXPECT_NEAR(dropped / kCount, 0.1, 5 * std::sqrt(0.09 / kCount));
  EXPECT_NEAR(sum / kCount, 1.0, 5 * std::sqrt(0.09 / kCount) / 0.9);
}

TEST(FillNormal, EqualsNormalAtBitForBit) {
  const RngKey key{99, hash_name("blocks.0.qkv"), 6};
  for (const Target& target : targets()) {
    Runtime runtime{{.device = target.device, .threads = target.threads, .isa = target.isa}};
    Stream& stream = runtime.compute();
    for (int64_t n : {0, 1, 2, 5, 4099}) {
      const Tensor f32 = runtime.tensor({n}, DType::kF32);
      const Tensor half = runtime.tensor({n}, DType::kBF16);
      fill_normal(stream, f32.view(), 0.5f, 0.02f, key);
      fill_normal(stream, half.view(), 0.5f, 0.02f, key);
      const std::vector<float> got = copy_to_host<float>(stream, f32.view());
      const std::vector<bf16> got_half = copy_to_host<bf16>(stream, half.view());
      for (size_t i = 0; i < got.size(); ++i) {
        const float want = 0.5f + 0.02f * normal_at(key, i);
        ASSERT_EQ(got[i], want) << i;
        ASSERT_EQ(got_half[i].bits, to_bf16(want).bits) << i;
      }
    }
  }
}

}  // namespace
}  // namespace zpp::kernels
