#include "parallel/gather_slots.h"

#include <gtest/gtest.h>

namespace zpp {
namespace {

using State = GatherSlots::State;

struct GatherSlotsTest : testing::Test {
  Runtime runtime{{.device = {}, .threads = 1}};
  ParameterTable table{DType::kF32};
  Scope scope{table};
  ParameterUnit &a = (scope / "a").unit(), &b = (scope / "b").unit(), &c = (scope / "c").unit();
  GatherSlots slots{runtime, 2, 128, DType::kF32};
};

TEST_F(GatherSlotsTest, AreTakenUntilThereAreNone) {
  GatherSlots::Slot* first = slots.take(a);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->state, State::kFetched);
  EXPECT_EQ(slots.find(a), first);
  EXPECT_NE(slots.take(b), first);
  EXPECT_EQ(slots.take(c), nullptr);
  EXPECT_EQ(slots.find(c), nullptr);
  EXPECT_EQ(slots.peak_units(), 2);
  EXPECT_EQ(slots.bytes(), 2 * 128 * 4);
}

TEST_F(GatherSlotsTest, OneThatWasLeftIsFoundAgainUntilItIsFreed) {
  GatherSlots::Slot* slot = slots.take(a);
  slot->state = State::kLeft;
  slots.free_left(&a);
  EXPECT_EQ(slots.find(a), slot);
  slots.free_left(nullptr);
  EXPECT_EQ(slots.find(a), nullptr);
}

TEST_F(GatherSlotsTest, OneFetchedInVainIsReleasedWhenItsGatherIsDone) {
  GatherSlots::Slot* used = slots.take(a);
  used->state = State::kInUse;
  GatherSlots::Slot* vain = slots.take(b);
  vain->ready = runtime.compute().record();
  slots.free_left(nullptr);
  EXPECT_EQ(slots.find(b), vain) << "it may still be wanted";
  slots.free_unused(nullptr);
  EXPECT_EQ(slots.find(b), nullptr);
  EXPECT_EQ(vain->released.state(), vain->ready.state());
  EXPECT_EQ(slots.find(a), used) << "it is bound to the unit";
}

TEST_F(GatherSlotsTest, TheLongestFreeOneIsTakenFirst) {
  GatherSlots::Slot* first = slots.take(a);
  GatherSlots::Slot* second = slots.take(b);
  second->state = State::kLeft;
  slots.free_left(nullptr);
  first->state = State::kLeft;
  slots.free_left(nullptr);
  EXPECT_EQ(slots.take(c), second);
  EXPECT_EQ(slots.take(a), first);
}

}  // namespace
}  // namespace zpp
