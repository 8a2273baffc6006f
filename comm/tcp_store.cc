// The client of a TCP store.
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "comm/deadline.h"
#include "comm/descriptor.h"
#include "comm/store.h"
#include "comm/tcp_wire.h"
#include "core/error.h"

namespace zpp {

namespace {

// How long a lost connection is tried to be replaced: the store's process may just be gone.
constexpr Millis kReconnect{2000};
// What an answer may take on its way.
constexpr Millis kOnTheWay{10000};

/// One attempt failed; another may succeed.
class LostConnection : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

double seconds(Millis t) { return std::chrono::duration<double>(t).count(); }

void wait_for(int fd, short events, const Deadline& deadline, const char* what) {
  pollfd polled{fd, events, 0};
  int ready;
  do {
    ready = ::poll(&polled, 1, static_cast<int>(deadline.left().count()));
  } while (ready < 0 && errno == EINTR);
  if (ready <= 0) throw LostConnection(fmt::format("{}: no answer", what));
}

void send_all(int fd, std::string_view bytes, const Deadline& deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
    } else if (errno == EAGAIN) {
      wait_for(fd, POLLOUT, deadline, "send");
    } else if (errno != EINTR) {
      throw LostConnection(fmt::format("send: {}", std::strerror(errno)));
    }
  }
}

std::string receive_exactly(int fd, size_t size, const Deadline& deadline) {
  std::string bytes(size, '\0');
  for (size_t have = 0; have < size;) {
    const ssize_t got = ::recv(fd, bytes.data() + have, size - have, 0);
    if (got > 0) {
      have += static_cast<size_t>(got);
    } else if (got == 0) {
      throw LostConnection("the other side closed the connection");
    } else if (errno == EAGAIN) {
      wait_for(fd, POLLIN, deadline, "receive");
    } else if (errno != EINTR) {
      throw LostConnection(fmt::format("receive: {}", std::strerror(errno)));
    }
  }
  return bytes;
}

struct AddressList {
  AddressList(const std::string& host, uint16_t port) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV;
    const int failure = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &first);
    if (failure != 0) throw LostConnection(::gai_strerror(failure));
  }
  ~AddressList() {
    if (first != nullptr) ::freeaddrinfo(first);
  }
  AddressList(const AddressList&) = delete;
  AddressList& operator=(const AddressList&) = delete;
  addrinfo* first = nullptr;
};

Descriptor connect_to(const std::string& host, uint16_t port, const Deadline& deadline) {
  const AddressList addresses(host, port);
  int reason = EADDRNOTAVAIL;
  for (const addrinfo* a = addresses.first; a != nullptr; a = a->ai_next) {
    Descriptor socket(
        ::socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol));
    if (!socket.valid()) {
      reason = errno;
      continue;
    }
    if (::connect(socket.get(), a->ai_addr, a->ai_addrlen) != 0) {
      reason = errno;
      if (reason != EINPROGRESS) continue;
      wait_for(socket.get(), POLLOUT, deadline, "connect");
      socklen_t size = sizeof reason;
      ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &reason, &size);
      if (reason != 0) continue;
    }
    const int on = 1;
    ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ::setsockopt(socket.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    return socket;
  }
  throw LostConnection(std::strerror(reason));
}

class TcpStore final : public Store {
 public:
  TcpStore(std::string host, uint16_t port, std::string token)
      : host_(std::move(host)), port_(port), token_(std::move(token)) {}

  /// Tries until `timeout`.
  void connect(Millis timeout) {
    const Deadline deadline(timeout);
    Millis pause{10};
    while (true) {
      try {
        return connect_once(deadline);
      } catch (const LostConnection& lost) {
        if (deadline.passed()) {
          throw Error(Code::kTimeout,
                      fmt::format("store: none answered at {} port {} within {:.1f} s (last: {}); "
                                  "is rank 0 running there, and may this host reach it?",
                                  host_, port_, seconds(timeout), lost.what()));
        }
      }
      std::this_thread::sleep_for(deadline.left(pause));
      pause = std::min(2 * pause, Millis(500));
    }
  }

  void set(std::string_view key, std::string_view value) override {
    if (value.size() > tcp_wire::kMaxValue) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("store: the value of '{}' has {} bytes, at most {} are possible", key,
                              value.size(), tcp_wire::kMaxValue));
    }
    ask(tcp_wire::Ask::kSet, key, value, Millis(0));
  }

  std::string get(std::string_view key, Millis timeout) override {
    const Answer answer = ask(tcp_wire::Ask::kGet, key, {}, timeout);
    if (answer.kind == tcp_wire::Answer::kTimeout) {
      throw Error(Code::kTimeout,
                  fmt::format("store: nobody has set '{}' within {:.1f} s", key, seconds(timeout)));
    }
    return answer.value;
  }

 private:
  struct Answer {
    tcp_wire::Answer kind;
    std::string value;
  };

  void connect_once(const Deadline& deadline) {
    Descriptor socket = connect_to(host_, port_, deadline);
    const auto size = static_cast<uint32_t>(token_.size());
    send_all(socket.get(), std::string(tcp_wire::kMagic) + tcp_wire::bytes_of(size) + token_,
             deadline);
    const std::string hello =
        receive_exactly(socket.get(), tcp_wire::kMagic.size() + sizeof(tcp_wire::Answer), deadline);
    if (!hello.starts_with(tcp_wire::kMagic)) throw LostConnection("what answers is no such store");
    const auto answer = tcp_wire::read_as<tcp_wire::Answer>(
        std::string_view(hello).substr(tcp_wire::kMagic.size()));
    if (answer != tcp_wire::Answer::kYes) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("store: {} port {} refuses this process: it serves another job (the "
                              "job tokens differ)",
                              host_, port_));
    }
    socket_ = std::move(socket);
  }

  Answer ask(tcp_wire::Ask kind, std::string_view key, std::string_view value, Millis timeout) {
    const std::lock_guard lock(mutex_);
    if (key.size() > tcp_wire::kMaxKey) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("store: a key has {} bytes, at most {} are possible", key.size(),
                              tcp_wire::kMaxKey));
    }
    const Deadline deadline(timeout);
    Deadline give_up(socket_.valid() ? Millis::max() : kReconnect);
    bool lost_before = !socket_.valid();
    while (true) {
      try {
        if (!socket_.valid()) connect_once(give_up);
        return exchange(kind, key, value, deadline);
      } catch (const LostConnection& lost) {
        socket_.reset();
        if (!lost_before) give_up = Deadline(kReconnect);
        lost_before = true;
        if (give_up.passed()) {
          throw Error(Code::kPeerLost,
                      fmt::format("store: the connection to {} port {} is lost ({}), and not to be "
                                  "had again for {:.0f} s; rank 0 has probably ended",
                                  host_, port_, lost.what(), seconds(kReconnect)));
        }
        std::this_thread::sleep_for(give_up.left(Millis(100)));
      }
    }
  }

  Answer exchange(tcp_wire::Ask kind, std::string_view key, std::string_view value,
                  const Deadline& deadline) {
    // The server keeps the time; this side allows for the way.
    const Millis left = deadline.left();
    const Deadline answer_by(std::min(left, Millis(INT_MAX) - kOnTheWay) + kOnTheWay);
    const tcp_wire::Question question{kind, static_cast<uint32_t>(key.size()),
                                      static_cast<uint32_t>(value.size()),
                                      static_cast<uint32_t>(left.count())};
    send_all(socket_.get(), tcp_wire::bytes_of(question).append(key).append(value), answer_by);
    const auto reply = tcp_wire::read_as<tcp_wire::Reply>(
        receive_exactly(socket_.get(), sizeof(tcp_wire::Reply), answer_by));
    return {reply.answer, receive_exactly(socket_.get(), reply.value_bytes, answer_by)};
  }

  const std::string host_;
  const uint16_t port_;
  const std::string token_;
  std::mutex mutex_;
  Descriptor socket_;
};

}  // namespace

std::unique_ptr<Store> connect_tcp_store(const std::string& host, uint16_t port,
                                         std::string_view job_token, Millis timeout) {
  auto store = std::make_unique<TcpStore>(host, port, std::string(job_token));
  store->connect(timeout);
  return store;
}

}  // namespace zpp
