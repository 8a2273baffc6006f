#include "parallel/stall_clock.h"

#include <gtest/gtest.h>

#include <thread>

#include "core/cpu_stream.h"
#include "core/error.h"

namespace zpp {
namespace {

struct StallClockTest : testing::Test {
  Workers workers{1};
  CpuStream waiting{workers, {.name = "waiting"}};
  CpuStream slow{workers, {.name = "slow"}};
  StallClock clock{waiting};

  static void sleep(Stream& stream) {
    stream.host("sleep", [] { std::this_thread::sleep_for(Millis(50)); });
  }
};

TEST_F(StallClockTest, CountsTheTimeThatAStreamHasNothingElseToDo) {
  sleep(slow);
  clock.wait(slow.record());
  waiting.synchronize();
  EXPECT_GT(clock.seconds(), 0.03);
}

TEST_F(StallClockTest, CountsNothingForWhatIsDoneInTime) {
  sleep(slow);
  slow.synchronize();
  const Event done = slow.record();
  done.synchronize();
  clock.wait(done);
  clock.wait({});
  waiting.synchronize();
  EXPECT_EQ(clock.seconds(), 0.0);
}

TEST_F(StallClockTest, PassesErrorsOn) {
  slow.host("fault", [] { throw Error(Code::kIo, "gone"); });
  clock.wait(slow.record());
  EXPECT_THROW(waiting.synchronize(), Error);
}

}  // namespace
}  // namespace zpp
