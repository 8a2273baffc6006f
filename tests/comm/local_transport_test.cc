#include "comm/local_transport.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <thread>

namespace zpp {
namespace {

using Bytes = std::vector<std::byte>;

constexpr Millis kLong{10000};

Topology topology_of(const std::vector<int>& sizes) { return Topology::nested(sizes); }

Envelope stamp(uint32_t sequence, uint32_t channel = 0,
               Operation operation = Operation::kBroadcast) {
  return {channel, operation, sequence, 0};
}

double seconds_of(const std::function<void()>& fn) {
  const auto begin = std::chrono::steady_clock::now();
  fn();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// For upper bounds: on a busy machine a single try may take any time.
double least_seconds_of(const std::function<void()>& fn) {
  double least = seconds_of(fn);
  for (int i = 0; i < 10; ++i) least = std::min(least, seconds_of(fn));
  return least;
}

Error error_of(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error";
  return Error(Code::kInternal, "none");
}

/// Sends `bytes` from `from` to `to` and receives them there, on this thread.
void pass(Transport& from, Transport& to, Bytes& bytes) {
  Bytes got(bytes.size());
  const auto sent = from.send(to.rank(), stamp(0), bytes);
  to.wait(to.receive(from.rank(), stamp(0), got), kLong);
  from.wait(sent, kLong);
  EXPECT_EQ(got, bytes);
}

TEST(LocalTransport, MatchesMessagesInOrderPerChannel) {
  LocalNetwork network(topology_of({2}));
  const auto a = network.connect(0, 0), b = network.connect(1, 0);
  Bytes one(3, std::byte{1}), two(3, std::byte{2}), three(3, std::byte{3});
  a->send(1, stamp(0, 5), one);
  a->send(1, stamp(1, 5), two);
  a->send(1, stamp(0, 6), three);
  Bytes first(3), second(3), other(3);
  const auto t1 = b->receive(0, stamp(0, 5), first);
  const auto t2 = b->receive(0, stamp(1, 5), second);
  const auto t3 = b->receive(0, stamp(0, 6), other);
  for (auto ticket : {t3, t2, t1}) b->wait(ticket, kLong);
  EXPECT_EQ(first, one);
  EXPECT_EQ(second, two);
  EXPECT_EQ(other, three);
}

TEST(LocalTransport, PlanesDoNotMeet) {
  LocalNetwork network(topology_of({2}));
  const auto a = network.connect(0, 0), b = network.connect(1, 1);
  Bytes bytes(1);
  a->send(1, stamp(0), bytes);
  EXPECT_EQ(error_of([&] { b->wait(b->receive(0, stamp(0), bytes), Millis(20)); }).code(),
            Code::kTimeout);
}

TEST(LocalTransport, ASendIsDoneWhenItsBytesHaveBeenRead) {
  LocalNetwork network(topology_of({2}));
  const auto a = network.connect(0, 0), b = network.connect(1, 0);
  Bytes bytes(8);
  const auto sent = a->send(1, stamp(0), bytes);
  const Error error = error_of([&] { a->wait(sent, Millis(20)); });
  EXPECT_EQ(error.code(), Code::kTimeout);
  const std::string text = error.what();
  EXPECT_NE(text.find("broadcast number 0"), std::string::npos) << text;
  EXPECT_NE(text.find("8 bytes to rank 1"), std::string::npos) << text;
  // The sender has given up its bytes: nobody may read them now.
  EXPECT_EQ(error_of([&] { b->wait(b->receive(0, stamp(0), bytes), kLong); }).code(),
            Code::kPeerLost);
}

TEST(LocalTransport, AMismatchNamesBothSides) {
  LocalNetwork network(topology_of({2}));
  const auto a = network.connect(0, 0), b = network.connect(1, 0);
  Bytes bytes(4), more(6);
  a->send(1, stamp(3), bytes);
  const Error error =
      error_of([&] { b->wait(b->receive(0, stamp(3, 0, Operation::kAllReduce), more), kLong); });
  EXPECT_EQ(error.code(), Code::kFailedPrecondition);
  const std::string text = error.what();
  EXPECT_NE(text.find("rank 1 expects all-reduce number 3"), std::string::npos) << text;
  EXPECT_NE(text.find("6 bytes from rank 0, which sent broadcast number 3"), std::string::npos)
      << text;
}

TEST(LocalTransport, AnAbortWakesEverybodyWithItsReason) {
  LocalNetwork network(topology_of({3}));
  const auto a = network.connect(0, 0), b = network.connect(1, 0), c = network.connect(2, 0);
  Bytes bytes(4);
  std::thread waiting([&] {
    const Error error = error_of([&] { b->wait(b->receive(0, stamp(0), bytes), kLong); });
    EXPECT_EQ(error.code(), Code::kPeerLost);
    EXPECT_NE(std::string(error.what()).find("rank 2 aborted: out of luck"), std::string::npos);
  });
  c->abort(Error(Code::kIo, "out of luck"));
  waiting.join();
  EXPECT_EQ(error_of([&] { c->wait(c->receive(0, stamp(0), bytes), kLong); }).code(),
            Code::kPeerLost);
}

TEST(LocalTransport, AClosedPeerIsLostButWhatItSentArrives) {
  LocalNetwork network(topology_of({2}));
  auto a = network.connect(0, 0);
  const auto b = network.connect(1, 0);
  Bytes bytes(4, std::byte{9});
  pass(*a, *b, bytes);
  a.reset();
  EXPECT_EQ(error_of([&] { b->wait(b->receive(0, stamp(1), bytes), kLong); }).code(),
            Code::kPeerLost);
}

TEST(LocalTransport, ASlowLinkTakesItsTimeAndIsSharedByANode) {
  LocalNetworkOptions options;
  options.shapes = {{}, {}, {.bytes_per_s = 10e6, .latency_s = 0}};
  LocalNetwork network(topology_of({2, 4}), options);
  std::vector<std::unique_ptr<Transport>> ranks;
  for (int rank = 0; rank < 4; ++rank) ranks.push_back(network.connect(rank, 0));
  Bytes bytes(500000);
  EXPECT_LT(least_seconds_of([&] { pass(*ranks[0], *ranks[1], bytes); }), 0.04)
      << "inside the node";
  EXPECT_GE(seconds_of([&] { pass(*ranks[0], *ranks[2], bytes); }), 0.05) << "50 ms at 10 MB/s";
  const double both = seconds_of([&] {
    Bytes got1(bytes.size()), got2(bytes.size());
    ranks[0]->send(2, stamp(1), bytes);
    ranks[1]->send(3, stamp(1), bytes);
    ranks[2]->wait(ranks[2]->receive(0, stamp(1), got1), kLong);
    ranks[3]->wait(ranks[3]->receive(1, stamp(1), got2), kLong);
  });
  EXPECT_GE(both, 0.1) << "both ranks of the node go through one pipe";
}

TEST(LocalTransport, ALatencyDelaysButDoesNotBlock) {
  LocalNetworkOptions options;
  options.shapes = {{}, {.bytes_per_s = 0, .latency_s = 0.05}};
  LocalNetwork network(topology_of({2}), options);
  const auto a = network.connect(0, 0), b = network.connect(1, 0);
  Bytes bytes(4);
  EXPECT_GE(seconds_of([&] { pass(*a, *b, bytes); }), 0.05);
  const double ten = least_seconds_of([&] {
    for (uint32_t i = 0; i < 10; ++i) a->send(1, stamp(i), bytes);
    for (uint32_t i = 0; i < 10; ++i) b->wait(b->receive(0, stamp(i), bytes), kLong);
  });
  EXPECT_LT(ten, 0.4);
}

TEST(LocalTransport, CountsWhatLeavesEachRankByLinkClass) {
  LocalNetwork network(topology_of({2, 4}));
  const auto a = network.connect(0, 0), b = network.connect(1, 0), c = network.connect(2, 0);
  Bytes bytes(10), more(7);
  pass(*a, *b, bytes);
  pass(*a, *c, more);
  EXPECT_EQ(network.sent_bytes(0), (std::vector<int64_t>{0, 10, 7}));
  EXPECT_EQ(network.sent_bytes(1), (std::vector<int64_t>{0, 0, 0}));
}

}  // namespace
}  // namespace zpp
