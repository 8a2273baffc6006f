#include "core/tensor.h"

#include <gtest/gtest.h>

#include <limits>

#include "core/runtime.h"

namespace zpp {
namespace {

Runtime::Options two_threads() {
  Runtime::Options options;
  options.threads = 2;
  return options;
}

class TensorTest : public testing::Test {
 protected:
  Runtime runtime_{two_threads()};
  Stream& stream_ = runtime_.compute();
};

TEST_F(TensorTest, OwnsADenseBuffer) {
  const Tensor t = runtime_.tensor({2, 3}, DType::kBF16);
  EXPECT_TRUE(t);
  EXPECT_EQ(t.shape(), (Shape{2, 3}));
  EXPECT_EQ(t.dtype(), DType::kBF16);
  EXPECT_EQ(t.numel(), 6);
  EXPECT_TRUE(t.view().contiguous());
  EXPECT_EQ(runtime_.pool().stats().blocks, 1);
  EXPECT_FALSE(Tensor{});
}

TEST_F(TensorTest, GivesTheBufferBackWithItsLastOwner) {
  Tensor a = runtime_.tensor({4, 4}, DType::kF32);
  Tensor b = a.reshape({16});
  EXPECT_FALSE(a.unique());
  a = {};
  EXPECT_TRUE(b.unique());
  EXPECT_EQ(runtime_.pool().stats().blocks, 1);
  b = {};
  EXPECT_EQ(runtime_.pool().stats().blocks, 0);
}

TEST_F(TensorTest, ViewsOfItShareItsElements) {
  const Tensor t = runtime_.tensor({2, 3}, DType::kI32);
  copy_from_host<int32_t>(stream_, {1, 2, 3, 4, 5, 6}, t.view());
  copy_from_host<int32_t>(stream_, {40, 50, 60}, t.slice(0, 1, 2).view());
  EXPECT_EQ(copy_to_host<int32_t>(stream_, t.reshape({6}).view()),
            (std::vector<int32_t>{1, 2, 3, 40, 50, 60}));
  const Tensor transposed = t.transpose(0, 1);
  EXPECT_EQ(transposed.shape(), (Shape{3, 2}));
  EXPECT_EQ(transposed.view().data, t.view().data);
}

TEST_F(TensorTest, CopiesHappenInStreamOrder) {
  const Tensor t = runtime_.tensor({1}, DType::kF32);
  for (int i = 0; i < 100; ++i) {
    std::vector<float> value{static_cast<float>(i)};
    copy_from_host(stream_, value, t.view());
    value[0] = -1;
    EXPECT_EQ(copy_to_host<float>(stream_, t.view())[0], static_cast<float>(i));
  }
}

TEST_F(TensorTest, EmptyTensorsCopyNothing) {
  const Tensor t = runtime_.tensor({0, 5}, DType::kF64);
  copy_from_host<double>(stream_, {}, t.view());
  EXPECT_TRUE(copy_to_host<double>(stream_, t.view()).empty());
}

TEST_F(TensorTest, RefusesCopiesThatDoNotMatch) {
  const Tensor t = runtime_.tensor({2, 2}, DType::kF32);
  EXPECT_THROW(copy_from_host<float>(stream_, {1, 2, 3}, t.view()), Error);
  EXPECT_THROW(copy_from_host<double>(stream_, {1, 2, 3, 4}, t.view()), Error);
  EXPECT_THROW(copy_to_host<int32_t>(stream_, t.view()), Error);
  EXPECT_THROW(copy_to_host<float>(stream_, t.transpose(0, 1).view()), Error);
  View elsewhere = t.view();
  elsewhere.device = {DeviceType::kCuda, 0};
  EXPECT_THROW(copy_to_host<float>(stream_, elsewhere), Error);
}

TEST_F(TensorTest, RefusesMoreBytesThanCanBeCounted) {
  EXPECT_THROW(runtime_.tensor({std::numeric_limits<int64_t>::max() / 2}, DType::kF32), Error);
}

TEST_F(TensorTest, CopyingToTheHostRethrowsTheStreamsError) {
  const Tensor t = runtime_.tensor({1}, DType::kF32);
  stream_.host("bad", [] { throw Error(Code::kIo, "boom"); });
  EXPECT_THROW(copy_to_host<float>(stream_, t.view()), Error);
}

TEST(Runtime, RefusesADeviceThatIsNotBuiltIn) {
  Runtime::Options options;
  options.device = {DeviceType::kCuda, 1};
  try {
    Runtime runtime(options);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kFailedPrecondition);
    EXPECT_STREQ(error.what(),
                 "device cuda:1 was asked for but this build has no CUDA device support");
  }
}

TEST(Runtime, UsesAllCoresUnlessTold) {
  EXPECT_EQ(Runtime({}).workers().threads(), available_cores());
  EXPECT_EQ(Runtime(two_threads()).workers().threads(), 2);
  Runtime::Options options;
  options.threads = -1;
  EXPECT_THROW(Runtime{options}, Error);
}

TEST(Runtime, DryCountsMemoryWithoutHavingIt) {
  Runtime::Options options;
  options.dry = true;
  Runtime runtime(options);
  EXPECT_TRUE(runtime.dry());
  const Tensor huge = runtime.tensor({1 << 20, 1 << 20}, DType::kF32);
  EXPECT_EQ(runtime.pool().stats().live_bytes, int64_t{4} << 40);
  const Tensor small = runtime.tensor({3}, DType::kF32);
  copy_from_host<float>(runtime.compute(), {1, 2, 3}, small.view());
  EXPECT_EQ(copy_to_host<float>(runtime.compute(), small.view()), (std::vector<float>{0, 0, 0}));
}

TEST(Runtime, DestroysWithTasksStillUsingItsMemory) {
  Runtime runtime(two_threads());
  for (int i = 0; i < 50; ++i) {
    const Tensor t = runtime.tensor({1000}, DType::kF32);
    copy_from_host(runtime.compute(), std::vector<float>(1000, 1.0f), t.view());
  }
}

}  // namespace
}  // namespace zpp
