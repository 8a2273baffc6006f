// What goes wrong on one of several ranks that are processes and train over UCX.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "parallel/rank_context.h"
#include "tests/comm/process_ranks.h"
#include "tests/parallel/toy_model.h"

namespace zpp {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using testing::Outcomes;
using testing::require;

constexpr int kWorld = 3;
constexpr Millis kDeadline{2000};
// Of noticing, of telling the others, and of a busy machine.
constexpr std::chrono::seconds kSlack{5};
constexpr const char* kOperation = "(all-gather|reduce-scatter|all-reduce) number [0-9]+";

struct TrainingProcess {
  ToyRank& toy;
  Runtime& runtime;
  int rank;
  std::vector<int64_t> pids;
};

void nothing(TrainingProcess&) {}

/// Ranks that train; `fault` is called before each step, `at_end` when one has failed. They say how
/// they ended, and that it was in time.
Outcomes train(const std::function<void(TrainingProcess& self, int64_t step)>& fault,
               const std::function<void(TrainingProcess& self)>& at_end = nothing) {
  const testing::ScratchDirectory scratch;
  return testing::run_processes(kWorld, [&](int rank) {
    const auto store = make_file_store(scratch.path(), "test");
    const Rendezvous place = meet(*store, rank, kWorld, {}, Millis(15000));
    RankContextOptions options{.topology = place.topology, .connect = [&](int plane) {
                                 return make_ucx_transport(*store, place, plane, {});
                               }};
    options.deadline = kDeadline;
    RankContext context(options);
    Runtime runtime({.device = {}, .threads = 1});
    ToyRank toy(runtime, &context.mesh());
    TrainingProcess self{toy, runtime, rank, place.pids};
    auto begin = std::chrono::steady_clock::now();
    try {
      for (int64_t step = 0; step < 6; ++step) {
        fault(self, step);
        begin = std::chrono::steady_clock::now();
        toy.step(step);
      }
    } catch (const Error& error) {
      context.abort(error);
      at_end(self);
      require(std::chrono::steady_clock::now() - begin < kDeadline + kSlack,
              std::string("to end in time, with ") + error.what());
      throw;
    }
  });
}

void expect_named(const Outcomes& outcomes) {
  for (const int rank : {0, 2}) {
    const std::string& outcome = outcomes[static_cast<size_t>(rank)];
    EXPECT_THAT(outcome, HasSubstr("rank 1 (host "));
    EXPECT_THAT(outcome, ContainsRegex(kOperation));
    EXPECT_THAT(outcome, ::testing::Not(HasSubstr("required")));
  }
}

/// Rank 1 does `what` in the middle of a step.
Outcomes train_until(const std::function<void()>& what) {
  return train([&](TrainingProcess& self, int64_t step) {
    if (self.rank == 1 && step == 3) self.runtime.compute().host("fault", what);
  });
}

TEST(ProcessFaults, WithoutOneAllRanksTrain) {
  EXPECT_EQ(train([](TrainingProcess&, int64_t) {}), Outcomes(kWorld, "done"));
}

TEST(ProcessFaults, ARankThatIsKilledIsNamedWithTheOperation) {
  const Outcomes outcomes = train_until([] { ::raise(SIGKILL); });
  EXPECT_EQ(outcomes[1], "signal 9");
  expect_named(outcomes);
}

TEST(ProcessFaults, ARankThatExitsWithSevenIsNamedWithTheOperation) {
  const Outcomes outcomes = train_until([] { ::_exit(7); });
  EXPECT_EQ(outcomes[1], "exit 7");
  expect_named(outcomes);
}

TEST(ProcessFaults, ARankThatIsStoppedIsNamedWithTheOperationAtTheDeadline) {
  const Outcomes outcomes = train(
      [](TrainingProcess& self, int64_t step) {
        if (self.rank != 1 || step != 3) return;
        self.runtime.compute().host("fault", [] { ::raise(SIGSTOP); });
      },
      [](TrainingProcess& self) {
        if (self.rank == 0) ::kill(static_cast<pid_t>(self.pids[1]), SIGKILL);
      });
  EXPECT_EQ(outcomes[1], "signal 9");
  expect_named(outcomes);
}

TEST(ProcessFaults, ARankThatRunsOtherUnitsFromTheStartIsNamed) {
  const Outcomes outcomes = train([](TrainingProcess& self, int64_t) {
    if (self.rank == 1) self.toy.order = {0, 2, 1};
  });
  for (const std::string& outcome : outcomes) {
    EXPECT_THAT(outcome, HasSubstr("rank 1 has run other units"));
  }
}

TEST(ProcessFaults, ARankThatBeginsToRunOtherUnitsEndsAllByTheDeadlineNamingTheOperation) {
  for (const std::vector<int>& order : {std::vector<int>{0, 2}, {0, 2, 1}}) {
    const Outcomes outcomes = train([&order](TrainingProcess& self, int64_t step) {
      if (self.rank == 1 && step == 3) self.toy.order = order;
    });
    for (const std::string& outcome : outcomes) {
      EXPECT_THAT(outcome, HasSubstr("rank 1"));
      EXPECT_THAT(outcome, ContainsRegex(std::string(kOperation) + "|other units"));
    }
  }
}

}  // namespace
}  // namespace zpp
