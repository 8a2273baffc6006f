#include "comm/ucx_transport.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "comm/ucx_tag.h"
#include "core/error.h"
#include "tests/comm/process_ranks.h"

namespace zpp {
namespace {

using testing::Outcomes;
using testing::require;
using testing::run_processes;
using testing::ScratchDirectory;
using testing::UcxRank;
using Bytes = std::vector<std::byte>;

constexpr Millis kDeadline{10000};

/// Bytes that tell sender, message and place apart.
Bytes pattern(size_t size, int sender, uint32_t number) {
  Bytes bytes(size);
  uint32_t x = static_cast<uint32_t>(sender) * 7919u + number * 104729u + 1u;
  for (std::byte& b : bytes) {
    x = x * 1664525u + 1013904223u;
    b = static_cast<std::byte>(x >> 24);
  }
  return bytes;
}

std::string code_and_text(const Error& error) {
  return std::string(code_name(error.code())) + ": " + error.what();
}

/// Runs `body` and reports an Error with its code.
template <class Body>
void with_code(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    throw std::runtime_error(code_and_text(error));
  }
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void exchange_sizes(Transport& t) {
  uint32_t number = 0;
  for (const size_t size : {size_t{0}, size_t{1}, size_t{100}, size_t{8191}, size_t{70001},
                            size_t{1} << 20, (size_t{16} << 20) + 3}) {
    for (int repeat = 0; repeat < (size > 1 << 20 ? 1 : 2); ++repeat, ++number) {
      const Envelope envelope{3, Operation::kAllToAll, number, 1};
      std::vector<Bytes> out, in;
      std::vector<Transport::Ticket> tickets;
      for (int peer = 0; peer < t.size(); ++peer) {
        out.push_back(pattern(size, t.rank(), number));
        in.emplace_back(size);
      }
      for (int peer = 0; peer < t.size(); ++peer) {
        const auto at = static_cast<size_t>(peer);
        tickets.push_back(t.receive(peer, envelope, in[at]));
        tickets.push_back(t.send(peer, envelope, out[at]));
      }
      for (const Transport::Ticket ticket : tickets) t.wait(ticket, kDeadline);
      for (int peer = 0; peer < t.size(); ++peer) {
        require(in[static_cast<size_t>(peer)] == pattern(size, peer, number), "the bytes sent");
      }
    }
  }
}

class UcxTransports : public ::testing::TestWithParam<const char*> {
 protected:
  UcxOptions options() const {
    UcxOptions options;
    options.transports = GetParam();
    return options;
  }
  Outcomes run(int world, const std::function<void(Transport&)>& body) const {
    const ScratchDirectory scratch;
    // Under a sanitizer on a busy machine even the good cases take their time.
    constexpr std::chrono::seconds kLimit(60);
    const auto rank_body = [&](int rank) {
      UcxRank self(scratch.path(), rank, world, options());
      with_code([&] { body(*self.transport); });
    };
    return run_processes(world, rank_body, kLimit);
  }
};

INSTANTIATE_TEST_SUITE_P(Over, UcxTransports, ::testing::Values("all", "tcp"),
                         [](const auto& param) { return std::string(param.param); });

TEST_P(UcxTransports, CarryMessagesOfAllSizesBetweenProcessesAndToThemselves) {
  EXPECT_EQ(run(2, exchange_sizes), Outcomes(2, "done"));
}

TEST_P(UcxTransports, KeepTheOrderOfEachChannel) {
  const auto body = [](Transport& t) {
    constexpr uint32_t kMessages = 200;
    const int peer = 1 - t.rank();
    std::vector<Bytes> in[2], out[2];
    std::vector<Transport::Ticket> tickets;
    for (uint32_t i = 0; i < kMessages; ++i) {
      for (const uint32_t channel : {0u, 1u}) {
        // Small and large ones travel in different ways and must not overtake each other.
        const size_t size = i % 3 == 0 ? 100000 : 8;
        out[channel].push_back(pattern(size, t.rank() + 2 * static_cast<int>(channel), i));
        tickets.push_back(
            t.send(peer, {channel, Operation::kBroadcast, i, 0}, out[channel].back()));
      }
    }
    for (const uint32_t channel : {1u, 0u}) {
      for (uint32_t i = 0; i < kMessages; ++i) {
        in[channel].emplace_back(i % 3 == 0 ? 100000 : 8);
        tickets.push_back(
            t.receive(peer, {channel, Operation::kBroadcast, i, 0}, in[channel].back()));
      }
    }
    for (auto at = tickets.rbegin(); at != tickets.rend(); ++at) t.wait(*at, kDeadline);
    for (const uint32_t channel : {0u, 1u}) {
      for (uint32_t i = 0; i < kMessages; ++i) {
        require(in[channel][i] ==
                    pattern(in[channel][i].size(), peer + 2 * static_cast<int>(channel), i),
                "message " + std::to_string(i));
      }
    }
  };
  EXPECT_EQ(run(2, body), Outcomes(2, "done"));
}

TEST_P(UcxTransports, ReportAKilledPeerByNameWithinSeconds) {
  const auto body = [](Transport& t) {
    Bytes bytes(64);
    const Envelope envelope{0, Operation::kAllGather, 41, 0};
    if (t.rank() == 0) {
      const auto start = std::chrono::steady_clock::now();
      try {
        t.wait(t.receive(1, envelope, bytes), kDeadline);
        t.wait(t.receive(1, envelope, bytes), kDeadline);
      } catch (const Error&) {
        require(seconds_since(start) < 5, "to learn it within seconds");
        throw;
      }
    }
    t.wait(t.send(0, envelope, bytes), kDeadline);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    ::raise(SIGKILL);
  };
  const Outcomes outcomes = run(2, body);
  EXPECT_EQ(outcomes[1], "signal 9");
  EXPECT_NE(outcomes[0].find("peer lost: rank 1 (host "), std::string::npos) << outcomes[0];
  EXPECT_NE(outcomes[0].find("all-gather number 41"), std::string::npos) << outcomes[0];
}

TEST_P(UcxTransports, ReportAPeerKilledBeforeTheFirstMessage) {
  const auto body = [](Transport& t) {
    if (t.rank() == 1) ::raise(SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    Bytes bytes(1 << 20);
    t.wait(t.send(1, {0, Operation::kAllGather, 0, 0}, bytes), kDeadline);
  };
  const Outcomes outcomes = run(2, body);
  EXPECT_NE(outcomes[0].find("peer lost: rank 1 (host "), std::string::npos) << outcomes[0];
}

TEST_P(UcxTransports, TimeOutOnAStoppedPeer) {
  const ScratchDirectory scratch;
  int64_t pid = 0;
  const Outcomes outcomes = run_processes(2, [&](int rank) {
    UcxRank self(scratch.path(), rank, 2, options());
    Transport& t = *self.transport;
    Bytes bytes(64);
    t.wait(rank == 0 ? t.receive(1, {}, bytes) : t.send(0, {}, bytes), kDeadline);
    if (rank == 1) ::raise(SIGSTOP);
    pid = self.place.pids[1];
    const auto start = std::chrono::steady_clock::now();
    try {
      with_code([&] { t.wait(t.receive(1, {0, Operation::kBarrier, 5, 2}, bytes), Millis(400)); });
    } catch (const std::exception&) {
      ::kill(static_cast<pid_t>(pid), SIGKILL);
      require(seconds_since(start) < 3, "to end soon after the deadline");
      throw;
    }
  });
  EXPECT_NE(outcomes[0].find("timeout: rank 0 (host "), std::string::npos) << outcomes[0];
  EXPECT_NE(outcomes[0].find("waiting for rank 1 (host "), std::string::npos) << outcomes[0];
  EXPECT_NE(outcomes[0].find("barrier number 5"), std::string::npos) << outcomes[0];
}

TEST_P(UcxTransports, NameBothSidesOfAMismatch) {
  const auto body = [](Transport& t) {
    Bytes bytes(1000);
    if (t.rank() == 0) {
      t.wait(t.receive(1, {0, Operation::kAllGather, 7, 0}, std::span(bytes).first(600)),
             kDeadline);
    } else {
      t.wait(t.send(0, {0, Operation::kReduceScatter, 8, 0}, bytes), kDeadline);
      t.wait(t.receive(0, {0, Operation::kReduceScatter, 8, 0}, bytes), kDeadline);
    }
  };
  const Outcomes outcomes = run(2, body);
  EXPECT_NE(outcomes[0].find("failed precondition: rank 0 "), std::string::npos) << outcomes[0];
  EXPECT_NE(outcomes[0].find("all-gather number 7"), std::string::npos) << outcomes[0];
  EXPECT_NE(outcomes[0].find("wants 600 bytes"), std::string::npos) << outcomes[0];
  EXPECT_NE(outcomes[0].find("sent 1000 bytes of reduce-scatter number 8"), std::string::npos)
      << outcomes[0];
  EXPECT_NE(outcomes[1].find("peer lost: rank 0 (host "), std::string::npos) << outcomes[1];
  EXPECT_NE(outcomes[1].find("aborted: "), std::string::npos) << outcomes[1];
}

TEST_P(UcxTransports, TakeALargerOrSmallerMessageForAMismatch) {
  for (const size_t sent : {size_t{1} << 20, size_t{10}}) {
    const auto body = [sent](Transport& t) {
      Bytes bytes(sent);
      Bytes room(5000);
      const Envelope envelope{0, Operation::kAllGather, 7, 0};
      const auto ticket = t.rank() == 0 ? t.receive(1, envelope, room) : t.send(0, envelope, bytes);
      t.wait(ticket, kDeadline);
    };
    const Outcomes outcomes = run(2, body);
    EXPECT_NE(outcomes[0].find("sent " + std::to_string(sent) + " bytes"), std::string::npos)
        << outcomes[0];
  }
}

TEST_P(UcxTransports, AbortWakesEverybodyWithTheReason) {
  const auto body = [](Transport& t) {
    Bytes bytes(8);
    const int next = (t.rank() + 1) % 3, before = (t.rank() + 2) % 3;
    const auto to = t.send(next, {}, bytes), from = t.receive(before, {}, bytes);
    t.wait(to, kDeadline);
    t.wait(from, kDeadline);
    std::thread other;
    if (t.rank() == 2) {
      other = std::thread([&t] {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        t.abort(Error(Code::kInternal, "the disk is full"));
      });
    }
    try {
      t.wait(t.receive(before, {}, bytes), kDeadline);
    } catch (...) {
      if (other.joinable()) other.join();
      throw;
    }
  };
  for (const std::string& outcome : run(3, body)) {
    EXPECT_EQ(outcome.find("peer lost: rank 2 (host "), 0u) << outcome;
    EXPECT_NE(outcome.find("aborted: the disk is full"), std::string::npos) << outcome;
  }
}

TEST_P(UcxTransports, SayWhenAPeerHasClosed) {
  const auto body = [](Transport& t) {
    Bytes bytes(8);
    const auto ticket = t.rank() == 0 ? t.receive(1, {}, bytes) : t.send(0, {}, bytes);
    t.wait(ticket, kDeadline);
    if (t.rank() == 0) t.wait(t.receive(1, {}, bytes), kDeadline);
  };
  const Outcomes outcomes = run(2, body);
  EXPECT_EQ(outcomes[1], "done");
  EXPECT_NE(outcomes[0].find("peer lost: rank 1"), std::string::npos) << outcomes[0];
  EXPECT_NE(outcomes[0].find("closed"), std::string::npos) << outcomes[0];
}

TEST(UcxTransport, RefusesATransportThatUcxDoesNotHave) {
  const ScratchDirectory scratch;
  const Outcomes outcomes = run_processes(1, [&](int) {
    UcxOptions options;
    options.transports = "pigeons";
    with_code([&] { UcxRank(scratch.path(), 0, 1, options); });
  });
  EXPECT_NE(outcomes[0].find("pigeons"), std::string::npos) << outcomes[0];
}

TEST(UcxTag, HoldsWhatWasPacked) {
  const Envelope envelope{1000, Operation::kAllToAll, 987654, 65000};
  const uint64_t tag = ucx_tag::pack(9999, envelope);
  EXPECT_EQ(ucx_tag::sender_of(tag), 9999);
  EXPECT_EQ(ucx_tag::envelope_of(tag), envelope);
}

}  // namespace
}  // namespace zpp
