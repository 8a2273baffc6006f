#include "core/workers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <numeric>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "core/error.h"

namespace zpp {
namespace {

using Range = std::pair<int64_t, int64_t>;

std::vector<Range> split(Workers& workers, int64_t n, int64_t grain) {
  std::mutex mutex;
  std::set<Range> ranges;
  workers.parallel_for(n, grain, [&](int64_t begin, int64_t end) {
    const std::lock_guard lock(mutex);
    EXPECT_TRUE(ranges.insert({begin, end}).second) << "twice";
  });
  return {ranges.begin(), ranges.end()};
}

class WorkersOfSize : public testing::TestWithParam<int> {
 protected:
  Workers workers_{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Sizes, WorkersOfSize, testing::Values(1, 2, 3, 8),
                         [](const auto& size) { return std::to_string(size.param) + "Threads"; });

TEST_P(WorkersOfSize, RunsEveryPartExactlyOnce) {
  EXPECT_EQ(workers_.threads(), GetParam());
  for (int64_t parts : {0, 1, 2, 3, 7, 8, 9, 100}) {
    for (int round = 0; round < 50; ++round) {
      std::vector<std::atomic<int>> calls(static_cast<size_t>(parts));
      workers_.run(parts, [&](int64_t part) { ++calls[static_cast<size_t>(part)]; });
      for (const auto& count : calls) ASSERT_EQ(count, 1);
    }
  }
}

// The counters are plain on purpose: a thread sanitizer sees whether run() orders its parts before
// its return.
TEST_P(WorkersOfSize, MakesThePartsWorkVisibleToTheCaller) {
  std::vector<int64_t> squares(16);
  for (int64_t round = 0; round < 200; ++round) {
    workers_.run(16, [&](int64_t i) { squares[static_cast<size_t>(i)] = i * i + round; });
    for (int64_t i = 0; i < 16; ++i) ASSERT_EQ(squares[static_cast<size_t>(i)], i * i + round);
  }
}

TEST_P(WorkersOfSize, RethrowsTheLowestPartsErrorAfterAllOthersRan) {
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> ran{0};
    try {
      workers_.run(20, [&](int64_t part) {
        ++ran;
        if (part % 5 == 3) throw std::runtime_error("part " + std::to_string(part));
      });
      ADD_FAILURE() << "no error";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "part 3");
    }
    EXPECT_EQ(ran, 20);
  }
  EXPECT_NO_THROW(workers_.run(4, [](int64_t) {}));
}

TEST_P(WorkersOfSize, RunsANestedLoopInline) {
  std::atomic<int> inner{0};
  workers_.run(4, [&](int64_t) {
    const auto thread = std::this_thread::get_id();
    workers_.run(4, [&](int64_t) {
      ++inner;
      EXPECT_EQ(std::this_thread::get_id(), thread);
    });
  });
  EXPECT_EQ(inner, 16);
}

TEST_P(WorkersOfSize, ServesSeveralCallersAtOnce) {
  std::vector<std::thread> callers;
  std::atomic<int64_t> total{0};
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        workers_.parallel_for(100, 1, [&](int64_t begin, int64_t end) { total += end - begin; });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(total, 4 * 200 * 100);
}

TEST_P(WorkersOfSize, SplitsEvenlyIntoRangesOfAtLeastTheGrain) {
  for (int64_t n : {1, 2, 5, 16, 17, 1000, 1001}) {
    for (int64_t grain : {1, 3, 100, 5000}) {
      const std::vector<Range> ranges = split(workers_, n, grain);
      const auto count = static_cast<int64_t>(ranges.size());
      EXPECT_LE(count, GetParam());
      EXPECT_EQ(count, std::max<int64_t>(1, std::min<int64_t>(GetParam(), n / grain)));
      int64_t at = 0;
      for (const auto& [begin, end] : ranges) {
        EXPECT_EQ(begin, at);
        EXPECT_GE(end - begin, n / count);
        EXPECT_LE(end - begin, n / count + 1);
        if (count > 1) {
          EXPECT_GE(end - begin, grain);
        }
        at = end;
      }
      EXPECT_EQ(at, n);
    }
  }
  EXPECT_TRUE(split(workers_, 0, 1).empty());
}

TEST(Workers, SplitTheSameWayWhenTheTeamIsBusy) {
  Workers workers(3);
  const std::vector<Range> alone = split(workers, 1001, 10);
  workers.run(2, [&](int64_t) { EXPECT_EQ(split(workers, 1001, 10), alone); });
}

TEST(Workers, ReallyUseTheirThreads) {
  Workers workers(3);
  std::atomic<int> inside{0};
  // Each part waits for the others, so one thread alone could not finish.
  workers.run(3, [&](int64_t) {
    ++inside;
    while (inside < 3) std::this_thread::yield();
  });
  EXPECT_EQ(inside, 3);
}

TEST(Workers, DoNotSpinWhenThereAreMoreThreadsThanCores) {
  EXPECT_EQ(Workers(available_cores() + 1).spin().count(), 0);
  EXPECT_GT(Workers(1).spin().count(), 0);
}

TEST(Workers, RefuseATeamOfNobody) {
  EXPECT_THROW(Workers(0), Error);
  EXPECT_THROW(Workers(-2), Error);
}

}  // namespace
}  // namespace zpp
