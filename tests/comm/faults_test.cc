// Ranks that do the wrong thing: everybody else learns of it in time, by name.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tests/comm/local_ranks.h"

namespace zpp {
namespace {

View view_of(std::vector<float>& v) {
  return make_view(v.data(), {static_cast<int64_t>(v.size())}, DType::kF32);
}

using Errors = std::vector<std::optional<Error>>;
using Rank = std::function<void(LocalRank&)>;

LocalRanksOptions with_deadline(int64_t ms, const std::string& algorithm = "direct") {
  LocalRanksOptions options;
  options.deadline = Millis(ms);
  options.links.force = algorithm;
  return options;
}

/// What the ranks ended with; the run must not take much longer than the deadline.
Errors errors_of(const LocalRanksOptions& options, const Rank& fn) {
  const auto begin = std::chrono::steady_clock::now();
  Errors errors = run_ranks_to_errors(topology_of({2, 4}), options, fn);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, options.deadline + std::chrono::seconds(5));
  return errors;
}

void sum(LocalRank& r, int64_t n) {
  std::vector<float> x(static_cast<size_t>(n), 1.0f);
  r.world.all_reduce(view_of(x), ReduceOp::kSum).synchronize();
}

bool says(const Error& error, const std::string& text) {
  return std::string(error.what()).find(text) != std::string::npos;
}

/// All but the culprit end with an error that names it and the operation; one knows first hand.
void expect_named(const Errors& errors, int culprit, const std::string& operation, Code code) {
  bool first_hand = false;
  for (size_t rank = 0; rank < errors.size(); ++rank) {
    if (static_cast<int>(rank) == culprit) continue;
    ASSERT_TRUE(errors[rank]) << "rank " << rank << " did not notice";
    const Error& error = *errors[rank];
    EXPECT_TRUE(error.code() == code || error.code() == Code::kPeerLost) << error.what();
    EXPECT_TRUE(says(error, "rank " + std::to_string(culprit))) << error.what();
    EXPECT_TRUE(says(error, operation)) << error.what();
    first_hand = first_hand || error.code() == code;
  }
  EXPECT_TRUE(first_hand || (errors[static_cast<size_t>(culprit)] &&
                             errors[static_cast<size_t>(culprit)]->code() == code));
}

TEST(Faults, AnotherOperationNamesBothSides) {
  const Errors errors = errors_of(with_deadline(5000), [](LocalRank& r) {
    if (r.rank != 1) return sum(r, 4);
    std::vector<float> in(1), out(4);
    r.world.all_gather(view_of(in), view_of(out)).synchronize();
  });
  expect_named(errors, 1, "all-reduce", Code::kFailedPrecondition);
  ASSERT_TRUE(errors[1]);
  EXPECT_TRUE(says(*errors[1], "all-gather number 0")) << errors[1]->what();
}

TEST(Faults, AnotherSizeNamesBothSides) {
  const Errors errors =
      errors_of(with_deadline(5000), [](LocalRank& r) { sum(r, r.rank == 2 ? 400 : 800); });
  expect_named(errors, 2, "all-reduce", Code::kFailedPrecondition);
}

TEST(Faults, OneCallMoreIsNoticedByItsNumber) {
  const Errors errors = errors_of(with_deadline(5000), [](LocalRank& r) {
    std::vector<float> x(4);
    if (r.rank == 3) r.world.broadcast(view_of(x), 0);
    r.world.broadcast(view_of(x), 1);
    sum(r, 4);
  });
  bool any = false;
  for (const auto& error : errors) any = any || (error && says(*error, "number 1"));
  EXPECT_TRUE(any);
}

TEST(Faults, ARankThatNeverComesIsWaitedForUntilTheDeadline) {
  for (const char* algorithm : {"direct", "ring", "two-level", "tree"}) {
    SCOPED_TRACE(algorithm);
    const Errors errors = errors_of(with_deadline(200, algorithm), [](LocalRank& r) {
      if (r.rank != 2) return sum(r, 1000);
      std::this_thread::sleep_for(std::chrono::milliseconds(600));
    });
    bool timed_out = false, named = false;
    for (int rank : {0, 1, 3}) {
      const auto& error = errors[static_cast<size_t>(rank)];
      ASSERT_TRUE(error);
      timed_out = timed_out || error->code() == Code::kTimeout;
      named = named || says(*error, "rank 2");
      EXPECT_TRUE(says(*error, "all-reduce number 0")) << error->what();
    }
    EXPECT_TRUE(timed_out);
    EXPECT_TRUE(named);
  }
}

TEST(Faults, ARankThatThrowsTakesTheOthersWithItAndSaysWhy) {
  const Errors errors = errors_of(with_deadline(5000), [](LocalRank& r) {
    if (r.rank == 3) throw Error(Code::kIo, "the disk of rank 3 is full");
    sum(r, 1000);
  });
  expect_named(errors, 3, "the disk of rank 3 is full", Code::kIo);
}

TEST(Faults, ARankThatLeavesIsLost) {
  const Errors errors = errors_of(with_deadline(5000), [](LocalRank& r) {
    if (r.rank != 0) sum(r, 1000);
  });
  expect_named(errors, 0, "has closed its transport", Code::kPeerLost);
}

TEST(Faults, AComputeStreamThatWaitsForTheCollectiveInheritsItsError) {
  const Errors errors = errors_of(with_deadline(100), [](LocalRank& r) {
    std::vector<float> x(8);
    if (r.rank == 1) return std::this_thread::sleep_for(std::chrono::milliseconds(400));
    r.world.all_reduce(view_of(x), ReduceOp::kSum).wait(r.runtime.compute());
    bool ran = false;
    r.runtime.compute().host("after the sum", [&] { ran = true; });
    EXPECT_THROW(r.runtime.compute().synchronize(), Error);
    EXPECT_FALSE(ran);
  });
  for (int rank : {0, 2, 3}) ASSERT_TRUE(errors[static_cast<size_t>(rank)]);
}

TEST(Faults, TheFlightRecordShowsWhatFailed) {
  errors_of(with_deadline(100), [](LocalRank& r) {
    if (r.rank == 1) return std::this_thread::sleep_for(std::chrono::milliseconds(400));
    try {
      sum(r, 8);
      ADD_FAILURE() << "no error";
    } catch (const Error&) {
      const std::string text = r.record.text();
      EXPECT_NE(text.find(R"("group": "grads/world", "operation": "all-reduce", "sequence": )"),
                std::string::npos)
          << text;
      EXPECT_NE(text.find(R"("error": "grads/world: all-reduce number )"), std::string::npos)
          << text;
      throw;
    }
  });
}

}  // namespace
}  // namespace zpp
