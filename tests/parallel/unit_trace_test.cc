#include "parallel/unit_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace zpp {
namespace {

using testing::ElementsAre;

struct UnitTraceTest : testing::Test {
  ParameterUnit a{"a", DType::kF32}, b{"b", DType::kF32}, c{"c", DType::kF32};
  UnitTrace trace;

  bool pass(const std::vector<ParameterUnit*>& units) {
    bool surprised = false;
    trace.begin();
    for (ParameterUnit* unit : units) surprised |= trace.enter(*unit);
    return surprised;
  }
};

TEST_F(UnitTraceTest, LooksAheadFromTheSecondPassOn) {
  trace.begin();
  trace.enter(a);
  EXPECT_TRUE(trace.next(2).empty());
  trace.enter(b);
  trace.enter(c);
  trace.begin();
  trace.enter(a);
  EXPECT_THAT(trace.next(1), ElementsAre(&b));
  EXPECT_THAT(trace.next(9), ElementsAre(&b, &c));
  trace.enter(b);
  trace.enter(c);
  EXPECT_TRUE(trace.next(1).empty());
}

TEST_F(UnitTraceTest, ANewOrderIsToldOnceAndRecorded) {
  pass({&a, &b, &c});
  trace.begin();
  EXPECT_FALSE(trace.enter(a));
  EXPECT_TRUE(trace.enter(c));
  EXPECT_EQ(trace.surprise().expected, &b);
  EXPECT_EQ(trace.surprise().found, &c);
  EXPECT_FALSE(trace.enter(b)) << "the rest of the pass is new, not surprising";
  EXPECT_TRUE(trace.next(1).empty());
  EXPECT_FALSE(pass({&a, &c, &b}));
  trace.begin();
  trace.enter(a);
  EXPECT_THAT(trace.next(1), ElementsAre(&c));
}

TEST_F(UnitTraceTest, ALongerOrShorterPassIsRecordedToo) {
  pass({&a, &b});
  EXPECT_TRUE(pass({&a, &b, &c}));
  EXPECT_EQ(trace.surprise().expected, nullptr);
  EXPECT_FALSE(pass({&a, &b, &c}));
  EXPECT_FALSE(pass({&a}));
  trace.begin();
  trace.enter(a);
  EXPECT_TRUE(trace.next(1).empty());
}

TEST_F(UnitTraceTest, HashesTellOrdersApart) {
  pass({&a, &b, &c});
  const uint64_t abc = trace.hash();
  pass({&a, &c, &b});
  EXPECT_NE(trace.hash(), abc);
  pass({&a, &b, &c});
  EXPECT_EQ(trace.hash(), abc);
}

}  // namespace
}  // namespace zpp
