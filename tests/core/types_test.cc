#include "core/types.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace zpp {
namespace {

/// Runs `fn`, which must throw, and returns what the message says.
template <class Fn>
std::string complaint(Fn&& fn, Code wanted = Code::kInvalidArgument) {
  try {
    fn();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), wanted) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

TEST(Error, KeepsCodeTextAndPlace) {
  const Error error(Code::kIo, "disk on fire");
  EXPECT_EQ(error.code(), Code::kIo);
  EXPECT_STREQ(error.what(), "disk on fire");
  EXPECT_NE(error.where().find("types_test.cc:"), std::string::npos) << error.where();
  EXPECT_STREQ(code_name(Code::kPeerLost), "peer lost");
}

TEST(Device, NamesItself) {
  EXPECT_EQ(to_string(Device{}), "cpu");
  EXPECT_EQ(to_string(Device{DeviceType::kCuda, 3}), "cuda:3");
}

TEST(DType, KnowsSizeAndName) {
  EXPECT_EQ(size_of(DType::kF32), 4);
  EXPECT_EQ(size_of(DType::kBF16), 2);
  EXPECT_EQ(size_of(DType::kF64), 8);
  EXPECT_EQ(size_of(DType::kI32), 4);
  EXPECT_EQ(size_of(DType::kI64), 8);
  EXPECT_EQ(size_of(DType::kI8), 1);
  EXPECT_EQ(size_of(DType::kU8), 1);
  EXPECT_STREQ(to_string(DType::kBF16), "bf16");
  EXPECT_STREQ(to_string(DType::kU8), "u8");
}

TEST(BF16, RoundsHalfToEven) {
  const float ulp = std::ldexp(1.0f, -7);  // of 1.0
  EXPECT_EQ(to_f32(to_bf16(1.0f)), 1.0f);
  EXPECT_EQ(to_f32(to_bf16(1.0f + ulp / 2)), 1.0f);
  EXPECT_EQ(to_f32(to_bf16(1.0f + ulp * 3 / 2)), 1.0f + 2 * ulp);
  EXPECT_EQ(to_f32(to_bf16(1.0f + ulp * 0.51f)), 1.0f + ulp);
  EXPECT_EQ(to_f32(to_bf16(-1.0f - ulp * 0.51f)), -1.0f - ulp);
}

TEST(BF16, KeepsSpecialValues) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(to_f32(to_bf16(inf)), inf);
  EXPECT_EQ(to_f32(to_bf16(-inf)), -inf);
  EXPECT_EQ(to_f32(to_bf16(std::numeric_limits<float>::max())), inf);
  EXPECT_TRUE(std::signbit(to_f32(to_bf16(-0.0f))));
  // A NaN whose payload lies in the lower half only must not become an infinity.
  const uint32_t bits = 0x7f800001u;
  float nan;
  std::memcpy(&nan, &bits, sizeof nan);
  EXPECT_TRUE(std::isnan(to_f32(to_bf16(nan))));
}

TEST(BF16, AllBitPatternsSurviveARoundTrip) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const bf16 x{static_cast<uint16_t>(bits)};
    if (std::isnan(to_f32(x))) continue;
    ASSERT_EQ(to_bf16(to_f32(x)).bits, x.bits);
  }
}

TEST(Shape, CountsFromEitherEnd) {
  Shape shape{8, 512, 768};
  EXPECT_EQ(shape.rank(), 3);
  EXPECT_EQ(shape[0], 8);
  EXPECT_EQ(shape[-1], 768);
  EXPECT_EQ(shape.numel(), 8 * 512 * 768);
  EXPECT_EQ(shape.str(), "(8, 512, 768)");
  shape.set(-2, 4);
  EXPECT_EQ(shape, (Shape{8, 4, 768}));
  EXPECT_NE(shape, (Shape{8, 4}));
}

TEST(Shape, ScalarHasOneElementAndEmptyHasNone) {
  EXPECT_EQ(Shape{}.numel(), 1);
  EXPECT_EQ(Shape{}.str(), "()");
  EXPECT_EQ((Shape{4, 0}).numel(), 0);
}

TEST(Shape, RefusesWhatCannotBeAShape) {
  EXPECT_NE(complaint([] { Shape{2, -1}; }).find("-1"), std::string::npos);
  EXPECT_NE(complaint([] { Shape{1, 2, 3, 4, 5, 6, 7}; }).find("7 dimensions"), std::string::npos);
  EXPECT_EQ(complaint([] { Shape({2, 3})[2]; }), "shape (2, 3) has no dimension 2");
  EXPECT_EQ(complaint([] { Shape({2, 3})[-3]; }), "shape (2, 3) has no dimension -3");
  Shape full{1, 1, 1, 1, 1, 1};
  complaint([&] { full.append(1); });
  const int64_t big = int64_t{1} << 40;
  complaint([&] { Shape({big, big}).numel(); });
}

class ViewOf24 : public testing::Test {
 protected:
  ViewOf24() {
    for (int i = 0; i < 24; ++i) values_[static_cast<size_t>(i)] = static_cast<float>(i);
    view_ = make_view(values_.data(), Shape{2, 3, 4}, DType::kF32);
  }

  static float at(const View& v, std::initializer_list<int64_t> index) {
    int64_t offset = 0;
    int dim = 0;
    for (int64_t i : index) offset += i * v.stride(dim++);
    return v.as<float>()[offset];
  }

  std::vector<float> values_ = std::vector<float>(24);
  View view_;
};

TEST_F(ViewOf24, StartsDense) {
  EXPECT_EQ(view_.strides, (Shape{12, 4, 1}));
  EXPECT_TRUE(view_.contiguous());
  EXPECT_TRUE(view_.dense_rows());
  EXPECT_EQ(view_.bytes(), 96);
  EXPECT_EQ(at(view_, {1, 2, 3}), 23.0f);
}

TEST_F(ViewOf24, TransposesWithoutMoving) {
  const View t = view_.transpose(0, -1);
  EXPECT_EQ(t.shape, (Shape{4, 3, 2}));
  EXPECT_EQ(at(t, {3, 2, 1}), 23.0f);
  EXPECT_EQ(at(t, {0, 1, 1}), 16.0f);
  EXPECT_FALSE(t.contiguous());
  EXPECT_FALSE(t.dense_rows());
  EXPECT_TRUE(t.transpose(0, 2).contiguous());
}

TEST_F(ViewOf24, SlicesAndSelects) {
  const View s = view_.slice(1, 1, 3);
  EXPECT_EQ(s.shape, (Shape{2, 2, 4}));
  EXPECT_EQ(at(s, {1, 1, 0}), 20.0f);
  EXPECT_FALSE(s.contiguous());
  EXPECT_TRUE(s.dense_rows());
  const View row = view_.select(0, 1).select(0, 2);
  EXPECT_EQ(row.shape, (Shape{4}));
  EXPECT_EQ(at(row, {1}), 21.0f);
  EXPECT_EQ(view_.slice(0, 2, 2).numel(), 0);
  EXPECT_TRUE(view_.slice(0, 2, 2).contiguous());
  EXPECT_EQ(at(view_.select(-1, 3), {0, 1}), 7.0f);
}

TEST_F(ViewOf24, ExtentOneDoesNotMatterForContiguity) {
  EXPECT_TRUE(view_.slice(0, 1, 2).contiguous());
  EXPECT_TRUE(view_.slice(0, 0, 1).transpose(0, 1).contiguous());
}

TEST_F(ViewOf24, Reshapes) {
  const View flat = view_.reshape({24});
  EXPECT_EQ(flat.strides, (Shape{1}));
  EXPECT_EQ(at(view_.reshape({6, 4}), {5, 3}), 23.0f);
  EXPECT_NE(complaint([&] { view_.reshape({5, 5}); }).find("(2, 3, 4) has 24"), std::string::npos);
  EXPECT_NE(complaint([&] { view_.transpose(0, 1).reshape({24}); }).find("not contiguous"),
            std::string::npos);
}

TEST_F(ViewOf24, KeepsTheGenerationOfItsParameter) {
  const uint32_t generation = 7;
  view_.generation = &generation;
  view_.seen = 7;
  EXPECT_EQ(view_.slice(0, 0, 1).select(0, 0).transpose(0, 1).generation, &generation);
  EXPECT_EQ(view_.reshape({24}).seen, 7u);
}

TEST_F(ViewOf24, RefusesBadArguments) {
  EXPECT_EQ(complaint([&] { view_.slice(1, 2, 4); }),
            "slice: [2, 4) is outside dimension 1 of a view of shape (2, 3, 4)");
  complaint([&] { view_.slice(1, -1, 2); });
  complaint([&] { view_.slice(1, 2, 1); });
  EXPECT_EQ(complaint([&] { view_.select(0, 2); }),
            "select: entry 2 is outside dimension 0 of a view of shape (2, 3, 4)");
  EXPECT_EQ(complaint([&] { view_.transpose(0, 3); }),
            "transpose: dimension 3 of a view of shape (2, 3, 4)");
  EXPECT_EQ(complaint([&] { view_.as<bf16>(); }),
            "a view of shape (2, 3, 4) holds f32 but is read as bf16");
}

TEST(View, AbsentIsFalse) {
  EXPECT_FALSE(View{});
  EXPECT_FALSE(Grad{});
}

}  // namespace
}  // namespace zpp
