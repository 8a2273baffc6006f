#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/store.h"
#include "core/error.h"

namespace zpp {
namespace {

using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

constexpr Millis kDeadline{10000};

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return std::string(code_name(error.code())) + ": " + error.what();
  }
  return "";
}

/// What the server said of strangers.
class Strangers {
 public:
  std::function<void(const std::string&)> listener() {
    return [this](const std::string& text) {
      const std::lock_guard lock(mutex_);
      texts_.push_back(text);
    };
  }
  /// Waits for the first `count`.
  std::vector<std::string> texts(size_t count) {
    const auto deadline = Clock::now() + kDeadline;
    while (Clock::now() < deadline) {
      const std::lock_guard lock(mutex_);
      if (texts_.size() >= count) return texts_;
    }
    return {};
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> texts_;
};

/// A plain connection to a port of this machine.
class Caller {
 public:
  explicit Caller(uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  ~Caller() { ::close(socket_); }
  void say(const std::string& text) const {
    EXPECT_EQ(::send(socket_, text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }
  /// All that comes until the other side closes.
  std::string hear() const {
    std::string heard;
    char buffer[256];
    for (ssize_t got; (got = ::recv(socket_, buffer, sizeof buffer, 0)) > 0;) {
      heard.append(buffer, static_cast<size_t>(got));
    }
    return heard;
  }

 private:
  const int socket_;
};

TEST(TcpStore, ServesManyClientsAtOnce) {
  const TcpStoreServer server(0, "secret");
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 16; ++rank) {
    ranks.emplace_back([&server, rank] {
      const auto store = connect_tcp_store("127.0.0.1", server.port(), "secret", kDeadline);
      store->set(std::to_string(rank), std::string(100000, static_cast<char>('a' + rank)));
      for (int other = 0; other < 16; ++other) {
        EXPECT_EQ(store->get(std::to_string(other), kDeadline),
                  std::string(100000, static_cast<char>('a' + other)));
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

TEST(TcpStore, RefusesAWrongTokenAndTellsBothSides) {
  Strangers strangers;
  const TcpStoreServer server(0, "secret", strangers.listener());
  for (const char* wrong : {"Secret", "secre", "secrets", ""}) {
    const std::string error =
        error_of([&] { connect_tcp_store("127.0.0.1", server.port(), wrong, kDeadline); });
    EXPECT_THAT(error, HasSubstr("invalid argument: "));
    EXPECT_THAT(error, HasSubstr("another job"));
  }
  const auto texts = strangers.texts(4);
  ASSERT_EQ(texts.size(), 4u);
  EXPECT_THAT(texts[0], HasSubstr("127.0.0.1"));
}

TEST(TcpStore, TellsAStrangerNothing) {
  Strangers strangers;
  const TcpStoreServer server(0, "secret", strangers.listener());
  const auto store = connect_tcp_store("127.0.0.1", server.port(), "secret", kDeadline);
  store->set("key", "value of the job");
  const Caller stranger(server.port());
  stranger.say("GET /key HTTP/1.1\r\n\r\n");
  EXPECT_EQ(stranger.hear().find("value"), std::string::npos);
  ASSERT_EQ(strangers.texts(1).size(), 1u);
  EXPECT_THAT(strangers.texts(1)[0], HasSubstr("garbage"));
}

TEST(TcpStore, IsNotHeldUpByHalfOpenAndSilentConnections) {
  const TcpStoreServer server(0, "secret");
  std::vector<std::unique_ptr<Caller>> silent;
  for (int i = 0; i < 300; ++i) {  // more than it keeps
    silent.push_back(std::make_unique<Caller>(server.port()));
    if (i % 2 == 0) silent.back()->say("zppst");
  }
  const auto store = connect_tcp_store("127.0.0.1", server.port(), "secret", kDeadline);
  store->set("key", "value");
  EXPECT_EQ(store->get("key", kDeadline), "value");
}

TEST(TcpStore, SaysThatItsPortIsTaken) {
  const TcpStoreServer server(0, "secret");
  const std::string error = error_of([&] { TcpStoreServer(server.port(), "other"); });
  EXPECT_THAT(error, HasSubstr("i/o error: "));
  EXPECT_THAT(error, HasSubstr("port " + std::to_string(server.port())));
}

TEST(TcpStore, WaitsForAServerThatStartsLater) {
  uint16_t port = 0;
  { port = TcpStoreServer(0, "secret").port(); }
  std::unique_ptr<TcpStoreServer> server;
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    server = std::make_unique<TcpStoreServer>(port, "secret");
  });
  EXPECT_EQ(error_of([&] { connect_tcp_store("127.0.0.1", port, "secret", kDeadline); }), "");
  later.join();
}

TEST(TcpStore, NamesTheServerThatDidNotCome) {
  uint16_t port = 0;
  { port = TcpStoreServer(0, "secret").port(); }
  const std::string error =
      error_of([&] { connect_tcp_store("127.0.0.1", port, "secret", Millis(50)); });
  EXPECT_THAT(error, HasSubstr("timeout: "));
  EXPECT_THAT(error, HasSubstr("127.0.0.1 port " + std::to_string(port)));
  EXPECT_THAT(error, HasSubstr("refused"));
}

TEST(TcpStore, GoesOnAfterTheServerCameBack) {
  auto server = std::make_unique<TcpStoreServer>(uint16_t{0}, "secret");
  const uint16_t port = server->port();
  const auto store = connect_tcp_store("127.0.0.1", port, "secret", kDeadline);
  store->set("key", "old");
  server.reset();
  server = std::make_unique<TcpStoreServer>(port, "secret");
  store->set("key", "new");
  EXPECT_EQ(store->get("key", kDeadline), "new");
}

TEST(TcpStore, LeavesAWaitWhenTheServerEnds) {
  auto server = std::make_unique<TcpStoreServer>(uint16_t{0}, "secret");
  const auto store = connect_tcp_store("127.0.0.1", server->port(), "secret", kDeadline);
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    server.reset();
  });
  const std::string error = error_of([&] { store->get("key", Millis::max()); });
  later.join();
  EXPECT_THAT(error, HasSubstr("peer lost: "));
}

TEST(TcpStore, LimitsSizes) {
  const TcpStoreServer server(0, "secret");
  const auto store = connect_tcp_store("127.0.0.1", server.port(), "secret", kDeadline);
  EXPECT_THAT(error_of([&] { store->set("key", std::string((16 << 20) + 1, 'x')); }),
              HasSubstr("invalid argument: "));
  EXPECT_THAT(error_of([&] { store->set(std::string(5000, 'k'), ""); }),
              HasSubstr("invalid argument: "));
  EXPECT_THAT(error_of([] { TcpStoreServer(0, std::string(2000, 't')); }),
              HasSubstr("invalid argument: "));
}

}  // namespace
}  // namespace zpp
