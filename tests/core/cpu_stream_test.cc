#include "core/cpu_stream.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace zpp {
namespace {

CpuStream::Options named(const char* name) {
  CpuStream::Options options;
  options.name = name;
  return options;
}

TEST(CpuStream, LaunchHandsOutTheTeam) {
  Workers workers(2);
  CpuStream stream(workers, named("compute"));
  std::atomic<int64_t> sum{0};
  stream.launch("sum", [&](Workers& team) {
    EXPECT_EQ(&team, &workers);
    team.parallel_for(1000, 1, [&](int64_t begin, int64_t end) { sum += end - begin; });
  });
  stream.synchronize();
  EXPECT_EQ(sum, 1000);
  EXPECT_EQ(&stream.workers(), &workers);
  EXPECT_EQ(stream.device(), Device{});
  EXPECT_EQ(stream.name(), "compute");
}

TEST(CpuStream, ErrorsOfAParallelLoopNameStreamAndTask) {
  Workers workers(2);
  CpuStream stream(workers, named("compute"));
  stream.launch("rms_norm", [](Workers& team) {
    team.run(4, [](int64_t part) {
      throw Error(Code::kInvalidArgument, "part " + std::to_string(part), "core/here.cc", 12);
    });
  });
  try {
    stream.synchronize();
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "stream compute, task rms_norm: part 0");
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    EXPECT_EQ(error.where(), "core/here.cc:12");
  }
}

TEST(CpuStream, ATaskThatSynchronizesItsOwnStreamFailsInsteadOfHanging) {
  Workers workers(1);
  CpuStream stream(workers, named("compute"));
  stream.host("selfish", [&] { stream.synchronize(); });
  try {
    stream.synchronize();
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kFailedPrecondition);
    EXPECT_EQ(std::string(error.what()).find("stream compute, task selfish: "), 0u);
  }
}

TEST(CpuStream, TwoStreamsShareOneTeam) {
  Workers workers(2);
  CpuStream a(workers, named("a"));
  CpuStream b(workers, named("b"));
  std::atomic<int64_t> sum{0};
  for (int i = 0; i < 100; ++i) {
    for (CpuStream* stream : {&a, &b}) {
      stream->launch("sum", [&](Workers& team) {
        team.parallel_for(64, 1, [&](int64_t begin, int64_t end) { sum += end - begin; });
      });
    }
  }
  a.synchronize();
  b.synchronize();
  EXPECT_EQ(sum, 2 * 100 * 64);
}

TEST(CpuStream, DryRunsNothingAndIsAlwaysComplete) {
  Workers workers(1);
  CpuStream::Options options = named("compute");
  options.dry = true;
  CpuStream stream(workers, options);
  EXPECT_TRUE(stream.dry());
  bool ran = false;
  stream.launch("work", [&](Workers&) { ran = true; });
  stream.host("work", [&] { ran = true; });
  const Event event = stream.record();
  EXPECT_TRUE(event.ready());
  stream.wait(event);
  stream.synchronize();
  EXPECT_FALSE(ran);
}

TEST(CpuStream, JitterDelaysButKeepsOrder) {
  Workers workers(1);
  CpuStream::Options options = named("compute");
  options.jitter_us = 200;
  options.jitter_seed = 3;
  std::vector<int> order;
  const auto start = std::chrono::steady_clock::now();
  {
    CpuStream stream(workers, options);
    for (int i = 0; i < 100; ++i) stream.host("append", [&order, i] { order.push_back(i); });
  }
  // The mean delay is 100 us, and the sum of 100 of them is far from a tenth of its mean.
  EXPECT_GT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(1));
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
}

TEST(CpuStream, LibraryStateIsMadeOncePerStreamAndType) {
  struct Cache {
    int uses = 0;
  };
  struct Other {
    int uses = 0;
  };
  Workers workers(1);
  CpuStream a(workers, named("a"));
  CpuStream b(workers, named("b"));
  for (int i = 0; i < 3; ++i) a.host("use", [&] { ++a.library_state<Cache>().uses; });
  b.host("use", [&] { ++b.library_state<Cache>().uses; });
  a.synchronize();
  b.synchronize();
  EXPECT_EQ(a.library_state<Cache>().uses, 3);
  EXPECT_EQ(a.library_state<Other>().uses, 0);
  EXPECT_EQ(b.library_state<Cache>().uses, 1);
}

/// Keeps what it is told.
class Listener final : public TaskObserver {
 public:
  struct Seen {
    std::string name;
    double flops;
    std::chrono::steady_clock::time_point begin, end;
  };
  void task_ran(const TaskRecord& task) noexcept override {
    seen.push_back({std::string(task.name), task.work.flops, task.begin, task.end});
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const Seen& s : seen) all.push_back(s.name);
    return all;
  }

  std::vector<Seen> seen;
};

TEST(CpuStream, TellsItsObserverWhatRanHowLongAndHowMuchWorkItWas) {
  Workers workers(1);
  Listener listener;
  CpuStream stream(workers, named("compute"));
  stream.host("before", [] {});
  stream.observe(&listener);
  stream.launch("gemm", {.flops = 12},
                [](Workers&) { std::this_thread::sleep_for(std::chrono::milliseconds(2)); });
  stream.host("upload", [] {});
  stream.observe(nullptr);
  stream.host("after", [] {});
  stream.synchronize();
  EXPECT_EQ(listener.names(), (std::vector<std::string>{"gemm", "upload"}));
  EXPECT_EQ(listener.seen[0].flops, 12);
  EXPECT_GE(listener.seen[0].end - listener.seen[0].begin, std::chrono::milliseconds(2));
  EXPECT_LE(listener.seen[0].end, listener.seen[1].begin);
}

TEST(CpuStream, TellsItsObserverOfWaitsButNotOfDroppedTasks) {
  Workers workers(1);
  Listener listener;
  CpuStream producer(workers, named("comm"));
  CpuStream stream(workers, named("compute"));
  stream.observe(&listener);
  producer.host("fail", [] {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    throw Error(Code::kIo, "boom");
  });
  stream.wait(producer.record());
  stream.host("dropped", [] {});
  EXPECT_THROW(stream.synchronize(), Error);
  EXPECT_EQ(listener.names(), std::vector<std::string>{"wait"});
}

TEST(Isa, HasANameAndABestOne) {
  EXPECT_STREQ(to_string(Isa::kAvx2), "avx2");
  EXPECT_STREQ(to_string(Isa::kAvx512), "avx512");
  Workers workers(1);
  EXPECT_EQ(CpuStream(workers, named("compute")).isa(), best_isa());
}

}  // namespace
}  // namespace zpp
