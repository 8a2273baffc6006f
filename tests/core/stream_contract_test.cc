// The contract of core/stream.h, C1 to C8, checked through the interface alone on every device that
// this build has.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>
#include <vector>

#include "core/cpu_stream.h"
#include "core/pool.h"
#include "core/stream.h"

namespace zpp {
namespace {

using namespace std::chrono_literals;

std::vector<Device> devices() { return {Device{DeviceType::kCpu, 0}}; }

class StreamContract : public testing::TestWithParam<Device> {
 protected:
  std::unique_ptr<Stream> make_stream(const std::string& name) {
    CpuStream::Options options;
    options.name = name;
    return std::make_unique<CpuStream>(workers_, options);
  }

  Workers workers_{2};
};

INSTANTIATE_TEST_SUITE_P(Devices, StreamContract, testing::ValuesIn(devices()), [](const auto& d) {
  return d.param.type == DeviceType::kCpu ? std::string("Cpu")
                                          : "Cuda" + std::to_string(d.param.index);
});

/// Holds a stream up until it is opened, or for ten seconds so that a broken test ends.
class Gate {
 public:
  void open() { promise_.set_value(); }
  std::function<void()> waiting() {
    return [opened = opened_] { opened.wait_for(10s); };
  }

 private:
  std::promise<void> promise_;
  std::shared_future<void> opened_ = promise_.get_future().share();
};

std::string error_of(const std::function<void()>& fn, Code wanted) {
  try {
    fn();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), wanted) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

void fail_with(Stream& stream, const char* task, Code code, const char* text) {
  stream.host(task, [code, text] { throw Error(code, text); });
}

TEST_P(StreamContract, C1EnqueueReturnsWhileTheStreamIsHeldUp) {
  Gate gate;
  const auto stream = make_stream("compute");
  std::atomic<int> ran{0};
  stream->host("gate", gate.waiting());
  for (int i = 0; i < 10000; ++i) stream->host("count", [&] { ++ran; });
  EXPECT_EQ(ran, 0);
  gate.open();
  stream->synchronize();
  EXPECT_EQ(ran, 10000);
}

TEST_P(StreamContract, C1TasksRunFirstInFirstOut) {
  const auto stream = make_stream("compute");
  std::vector<int> order;
  for (int i = 0; i < 1000; ++i) stream->host("append", [&order, i] { order.push_back(i); });
  stream->synchronize();
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(order[static_cast<size_t>(i)], i);
}

TEST_P(StreamContract, C2AnEventCompletesAfterAllEarlierTasksAndNotBefore) {
  Gate gate;
  const auto stream = make_stream("compute");
  bool ran = false;
  stream->host("gate", gate.waiting());
  stream->host("work", [&] { ran = true; });
  const Event event = stream->record();
  EXPECT_FALSE(event.ready());
  error_of([&] { event.synchronize(20ms); }, Code::kTimeout);
  gate.open();
  event.synchronize();
  EXPECT_TRUE(event.ready());
  EXPECT_TRUE(ran);
}

TEST_P(StreamContract, C2AnEventDoesNotWaitForLaterTasks) {
  Gate gate;
  const auto stream = make_stream("compute");
  const Event event = stream->record();
  stream->host("gate", gate.waiting());
  event.synchronize(5s);
  gate.open();
}

TEST_P(StreamContract, C2ADefaultEventIsComplete) {
  const Event event;
  EXPECT_TRUE(event.ready());
  event.synchronize(0ms);
  make_stream("compute")->wait(event);
}

TEST_P(StreamContract, C2AnEventOutlivesItsStream) {
  Event event;
  {
    const auto stream = make_stream("compute");
    event = stream->record();
  }
  EXPECT_TRUE(event.ready());
  const auto other = make_stream("comm");
  other->wait(event);
  other->synchronize();
}

TEST_P(StreamContract, C3WaitOrdersStreamsWithoutBlockingTheHost) {
  Gate gate;
  const auto producer = make_stream("producer");
  const auto consumer = make_stream("consumer");
  int value = 0;
  int seen = -1;
  producer->host("gate", gate.waiting());
  producer->host("write", [&] { value = 42; });
  consumer->wait(producer->record());
  consumer->host("read", [&] { seen = value; });
  const Event read = consumer->record();
  error_of([&] { read.synchronize(20ms); }, Code::kTimeout);
  gate.open();
  read.synchronize();
  EXPECT_EQ(seen, 42);
}

TEST_P(StreamContract, C3PingPongBetweenTwoStreamsKeepsOrder) {
  const auto a = make_stream("a");
  const auto b = make_stream("b");
  int value = 0;  // plain: only the events order the accesses
  for (int i = 0; i < 300; ++i) {
    a->host("add", [&] { ++value; });
    b->wait(a->record());
    b->host("double", [&] { value = value * 2 % 1000003; });
    a->wait(b->record());
  }
  a->synchronize();
  int expected = 0;
  for (int i = 0; i < 300; ++i) expected = (expected + 1) * 2 % 1000003;
  EXPECT_EQ(value, expected);
}

TEST_P(StreamContract, C4TheFirstErrorSticksAndLaterTasksAreDropped) {
  const auto stream = make_stream("compute");
  bool later = false;
  fail_with(*stream, "rms_norm", Code::kOutOfMemory, "boom");
  fail_with(*stream, "gemm", Code::kIo, "second");
  stream->host("later", [&] { later = true; });
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(error_of([&] { stream->synchronize(); }, Code::kOutOfMemory),
              "stream compute, task rms_norm: boom");
  }
  EXPECT_FALSE(later);
}

TEST_P(StreamContract, C4EventsBeforeTheErrorStayCleanAndLaterOnesCarryIt) {
  const auto stream = make_stream("compute");
  const Event before = stream->record();
  fail_with(*stream, "rms_norm", Code::kPeerLost, "boom");
  const Event after = stream->record();
  EXPECT_NO_THROW(before.synchronize());
  error_of([&] { after.synchronize(); }, Code::kPeerLost);
  EXPECT_TRUE(after.ready());
}

TEST_P(StreamContract, C4AWaitingStreamInheritsTheErrorInOrder) {
  Gate gate;
  const auto producer = make_stream("comm");
  const auto consumer = make_stream("compute");
  producer->host("gate", gate.waiting());
  fail_with(*producer, "all_gather", Code::kPeerLost, "rank 3 is gone");
  bool before = false;
  bool after = false;
  consumer->host("before", [&] { before = true; });
  consumer->wait(producer->record());
  consumer->host("after", [&] { after = true; });
  gate.open();
  EXPECT_EQ(error_of([&] { consumer->synchronize(); }, Code::kPeerLost),
            "stream comm, task all_gather: rank 3 is gone");
  EXPECT_TRUE(before);
  EXPECT_FALSE(after);
}

TEST_P(StreamContract, C4AnEventThatHasFailedAlreadyIsInheritedToo) {
  const auto producer = make_stream("comm");
  const auto consumer = make_stream("compute");
  fail_with(*producer, "all_gather", Code::kTimeout, "too late");
  const Event failed = producer->record();
  while (!failed.ready()) std::this_thread::yield();
  bool after = false;
  consumer->wait(failed);
  consumer->host("after", [&] { after = true; });
  error_of([&] { consumer->synchronize(); }, Code::kTimeout);
  EXPECT_FALSE(after);
}

TEST_P(StreamContract, C4OtherExceptionsBecomeInternalErrors) {
  const auto a = make_stream("a");
  a->host("vector", [] { throw std::out_of_range("index 9"); });
  EXPECT_EQ(error_of([&] { a->synchronize(); }, Code::kInternal), "stream a, task vector: index 9");
  const auto b = make_stream("b");
  b->host("odd", [] { throw 7; });
  EXPECT_NE(error_of([&] { b->synchronize(); }, Code::kInternal).find("stream b, task odd: "),
            std::string::npos);
}

TEST_P(StreamContract, C4ManyHostsMayMeetTheSameError) {
  const auto stream = make_stream("compute");
  fail_with(*stream, "rms_norm", Code::kIo, "boom");
  const Event event = stream->record();
  std::vector<std::thread> hosts;
  std::atomic<int> met{0};
  for (int i = 0; i < 4; ++i) {
    hosts.emplace_back([&] {
      try {
        event.synchronize();
      } catch (const Error& error) {
        met += error.code() == Code::kIo;
      }
    });
  }
  for (std::thread& host : hosts) host.join();
  EXPECT_EQ(met, 4);
}

TEST_P(StreamContract, C5AFreedBlockIsReusedByTheSameStreamWhileTasksStillUseIt) {
  Pool pool(GetParam(), host_memory());
  Gate gate;
  const auto stream = make_stream("compute");
  std::shared_ptr<void> first = pool.allocate(4096, *stream);
  int* const data = static_cast<int*>(first.get());
  int seen = 0;
  stream->host("gate", gate.waiting());
  stream->host("write", [data] { *data = 1; });
  stream->host("read", [data, &seen] { seen = *data; });
  first.reset();
  const std::shared_ptr<void> second = pool.allocate(4096, *stream);
  EXPECT_EQ(second.get(), data);
  stream->host("overwrite", [data] { *data = 2; });
  gate.open();
  stream->synchronize();
  EXPECT_EQ(seen, 1);
}

TEST_P(StreamContract, C6DestructionDrains) {
  Gate gate;
  std::atomic<int> ran{0};
  std::thread opener;
  {
    const auto stream = make_stream("compute");
    stream->host("gate", gate.waiting());
    for (int i = 0; i < 100; ++i) stream->host("count", [&] { ++ran; });
    opener = std::thread([&] { gate.open(); });
  }
  EXPECT_EQ(ran, 100);
  opener.join();
}

TEST_P(StreamContract, C6DestructionOfAFailedStreamIsQuiet) {
  const auto stream = make_stream("compute");
  fail_with(*stream, "rms_norm", Code::kIo, "boom");
}

TEST_P(StreamContract, C6ATaskLetsGoOfWhatItHoldsOnceItHasRun) {
  Gate gate;
  const auto stream = make_stream("compute");
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = held;
  stream->host("use", [held = std::move(held)] {});
  const Event used = stream->record();
  stream->host("gate", gate.waiting());
  used.synchronize();
  EXPECT_TRUE(watch.expired());
  gate.open();
}

TEST_P(StreamContract, C7AStreamDoesNotWaitForItself) {
  const auto stream = make_stream("compute");
  bool ran = false;
  stream->host("first", [] {});
  const Event own = stream->record();
  stream->wait(own);
  stream->host("second", [&] { ran = true; });
  stream->record().synchronize(5s);
  EXPECT_TRUE(ran);
}

TEST_P(StreamContract, C8AWaitRefersToTheEventAsRecordedNotToLaterWork) {
  Gate gate;
  const auto producer = make_stream("producer");
  const auto consumer = make_stream("consumer");
  consumer->wait(producer->record());
  producer->host("gate", gate.waiting());
  consumer->record().synchronize(5s);
  gate.open();
}

}  // namespace
}  // namespace zpp
