// Communication hides behind computing: units that sleep for a known time, over links of a known
// speed, so that the answer does not depend on how busy the machine is.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "tests/parallel/sleeping_model.h"

namespace zpp {
namespace {

constexpr SleepingShape kShape;

/// A few steps of two ranks over a link on which moving half a layer takes `message_s` (0: no time).
SleepingTimes run(double message_s, bool overlap, int64_t prefetch) {
  LocalRanksOptions options;
  if (message_s > 0) {
    options.network.shapes = {{}, {.bytes_per_s = kShape.message_bytes() / message_s}};
  }
  options.links.force = "direct";
  SleepingTimes times;
  run_ranks(topology_of({2}), options, [&](LocalRank& rank) {
    Mesh mesh{rank.mesh.topology, rank.mesh.weights, rank.mesh.grads, &rank.ledger};
    const SleepingTimes mine = time_sleeping(rank.runtime, mesh, kShape, overlap, prefetch);
    if (rank.rank == 0) times = mine;
  });
  return times;
}

/// Seconds of a step that communicates in no time: sleeps last longer on a busy machine.
double compute_s() { return run(0, true, 1).step_s; }

/// Calls `holds` until it says so: a busy machine delays some tries, but not all of them.
testing::AssertionResult in_one_of_six_tries(
    const std::function<testing::AssertionResult()>& holds) {
  testing::AssertionResult last = testing::AssertionFailure();
  for (int i = 0; i < 6; ++i) {
    last = holds();
    if (last) break;
  }
  return last;
}

TEST(ZeroSchedule, CommunicationOfSeventyPercentOfComputingHidesBehindIt) {
  EXPECT_TRUE(in_one_of_six_tries([] {
    const double compute = compute_s();
    const SleepingTimes found = run(0.7 * compute / kShape.messages(), true, 1);
    const bool holds = found.step_s < 1.15 * compute && found.comm_s > 0.6 * compute &&
                       // What is not hidden makes the step longer than its computing.
                       std::abs(found.exposed_s - (found.step_s - compute)) < 0.1 * compute;
    return (holds ? testing::AssertionSuccess() : testing::AssertionFailure())
           << "computing " << compute << " s, step " << found.step_s << ", communicating "
           << found.comm_s << ", exposed " << found.exposed_s;
  }));
}

TEST(ZeroSchedule, WithoutOverlapTimesAddUp) {
  const double compute = compute_s();
  const SleepingTimes found = run(0.7 * compute / kShape.messages(), false, 1);
  EXPECT_GT(found.step_s, 1.5 * compute);
  EXPECT_GT(found.exposed_s, 0.6 * compute);
}

TEST(ZeroSchedule, ASlowLinkBoundsTheStep) {
  EXPECT_TRUE(in_one_of_six_tries([] {
    const double communicate = 1.4 * compute_s();
    const double step = run(communicate / kShape.messages(), true, 3).step_s;
    return (step < 1.15 * communicate ? testing::AssertionSuccess() : testing::AssertionFailure())
           << "communicating " << communicate << " s, step " << step;
  }));
}

}  // namespace
}  // namespace zpp
