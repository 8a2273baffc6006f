// The server's one thread: a poll loop over connections that never blocks on any of them, so that
// half a message, silence or garbage from one cannot hold up the others.
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <list>
#include <map>
#include <optional>
#include <thread>
#include <vector>

#include "comm/deadline.h"
#include "comm/descriptor.h"
#include "comm/store.h"
#include "comm/tcp_wire.h"
#include "core/error.h"

namespace zpp {

namespace {

constexpr Millis kHelloTimeout{10000};
// Connections that have not shown the token yet.
constexpr size_t kMaxUnknown = 256;

struct Pending {
  std::string key;
  Deadline deadline;
};

struct Connection {
  Descriptor socket;
  std::string from;
  bool known = false;  // has shown the token
  Deadline hello{kHelloTimeout};
  std::string in, out;
  std::optional<Pending> pending;  // a get that waits for its key
  bool closing = false;            // once `out` is sent
  bool closed = false;
};

/// Takes as long for a wrong token as for the right one.
bool same_secret(std::string_view a, std::string_view b) {
  unsigned difference = a.size() != b.size();
  for (size_t i = 0; i < a.size(); ++i) {
    difference |= static_cast<unsigned char>(a[i]) ^
                  static_cast<unsigned char>(b.empty() ? '\0' : b[i % b.size()]);
  }
  return difference == 0;
}

std::string address_text(const sockaddr_storage& address, socklen_t size) {
  char host[NI_MAXHOST], port[NI_MAXSERV];
  const int failure =
      ::getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, host, sizeof host, port,
                    sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
  return failure != 0 ? "an unknown address" : fmt::format("{} port {}", host, port);
}

Error listen_error(uint16_t port, int reason) {
  std::string text = fmt::format("store: cannot listen on port {}: {}", port, strerror(reason));
  if (reason == EADDRINUSE) {
    text += "; another program (or another job) uses it, choose a different one or 0 for any";
  }
  return Error(Code::kIo, text);
}

Descriptor listen_on(uint16_t port) {
  // A socket of IPv6 takes IPv4 as well; kernels without IPv6 get one of IPv4.
  for (const int family : {AF_INET6, AF_INET}) {
    Descriptor socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket.valid() && family == AF_INET6) continue;
    const int on = 1, off = 0;
    ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_storage any{};
    socklen_t size = sizeof(sockaddr_in);
    if (family == AF_INET6) {
      ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
      auto& address = reinterpret_cast<sockaddr_in6&>(any);
      address.sin6_family = AF_INET6;
      address.sin6_port = htons(port);
      size = sizeof address;
    } else {
      auto& address = reinterpret_cast<sockaddr_in&>(any);
      address.sin_family = AF_INET;
      address.sin_port = htons(port);
    }
    const bool bound = ::bind(socket.get(), reinterpret_cast<sockaddr*>(&any), size) == 0;
    if (bound && ::listen(socket.get(), SOMAXCONN) == 0) return socket;
    if (family == AF_INET || errno != EADDRNOTAVAIL) throw listen_error(port, errno);
  }
  throw listen_error(port, EAFNOSUPPORT);
}

}  // namespace

struct TcpStoreServer::Impl {
  Impl(uint16_t wanted, std::string job_token, std::function<void(const std::string&)> stranger)
      : token(std::move(job_token)),
        on_stranger(std::move(stranger)),
        listener(listen_on(wanted)),
        stop(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (token.size() > tcp_wire::kMaxToken) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("store: the job token has {} bytes, at most {} are possible",
                              token.size(), tcp_wire::kMaxToken));
    }
    thread = std::thread([this] { serve(); });
  }

  ~Impl() {
    const uint64_t one = 1;
    if (::write(stop.get(), &one, sizeof one) != sizeof one) std::abort();
    thread.join();
  }

  void serve() {
    std::vector<pollfd> polled;
    while (true) {
      polled = {{stop.get(), POLLIN, 0}, {listener.get(), POLLIN, 0}};
      Millis timeout(60000);
      for (const Connection& c : connections) {
        const short events = static_cast<short>(POLLIN | (c.out.empty() ? 0 : POLLOUT));
        polled.push_back({c.socket.get(), events, 0});
        if (!c.known || c.closing) timeout = c.hello.left(timeout);
        if (c.pending) timeout = c.pending->deadline.left(timeout);
      }
      ::poll(polled.data(), polled.size(), static_cast<int>(timeout.count()));
      if (polled[0].revents != 0) return;
      size_t i = 2;
      for (Connection& c : connections) {
        const short got = polled[i++].revents;
        if (got & (POLLIN | POLLHUP | POLLERR)) read_from(c);
        if (c.pending && c.pending->deadline.passed()) answer_pending(c);
        if ((!c.known || c.closing) && c.hello.passed()) c.closed = true;
        if (!c.out.empty()) write_to(c);
      }
      // Those set by one connection may be what another waits for.
      for (Connection& c : connections) {
        if (!c.out.empty()) write_to(c);
      }
      connections.remove_if([&](const Connection& c) {
        if (c.closed && !c.known && !c.closing) tell(c, "went away or fell silent");
        return c.closed;
      });
      if (polled[1].revents != 0) accept_all();
    }
  }

  void tell(const Connection& c, std::string_view what) {
    if (on_stranger) {
      on_stranger(fmt::format("store: a connection from {} {} without the job's token; closed",
                              c.from, what));
    }
  }

  void accept_all() {
    while (true) {
      sockaddr_storage address{};
      socklen_t size = sizeof address;
      Descriptor socket(::accept4(listener.get(), reinterpret_cast<sockaddr*>(&address), &size,
                                  SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!socket.valid()) {
        // Out of descriptors: whoever has shown no token makes room, or we try again a bit later.
        if ((errno == EMFILE || errno == ENFILE) && !drop_oldest_unknown()) {
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
        }
        return;
      }
      const int on = 1;
      ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      ::setsockopt(socket.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
      const auto unknown = std::count_if(connections.begin(), connections.end(),
                                         [](const Connection& c) { return !c.known; });
      if (static_cast<size_t>(unknown) >= kMaxUnknown) drop_oldest_unknown();
      connections.emplace_back();
      connections.back().socket = std::move(socket);
      connections.back().from = address_text(address, size);
    }
  }

  bool drop_oldest_unknown() {
    const auto oldest = std::find_if(connections.begin(), connections.end(),
                                     [](const Connection& c) { return !c.known; });
    if (oldest == connections.end()) return false;
    tell(*oldest, "was the oldest of too many");
    connections.erase(oldest);
    return true;
  }

  void read_from(Connection& c) {
    const size_t limit = c.known
                             ? sizeof(tcp_wire::Question) + tcp_wire::kMaxKey + tcp_wire::kMaxValue
                             : tcp_wire::kMagic.size() + 4 + tcp_wire::kMaxToken;
    char buffer[16384];
    while (!c.closed && c.in.size() <= limit) {
      const ssize_t got = ::recv(c.socket.get(), buffer, sizeof buffer, 0);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && errno == EAGAIN) break;
      if (got <= 0) {
        c.closed = true;
        break;
      }
      c.in.append(buffer, static_cast<size_t>(got));
    }
    if (c.closing) {
      c.in.clear();
      return;
    }
    if (!c.known) read_hello(c);
    while (c.known && !c.closed && !c.pending && read_question(c)) {
    }
  }

  void read_hello(Connection& c) {
    const std::string_view in = c.in;
    const size_t before_token = tcp_wire::kMagic.size() + sizeof(uint32_t);
    const std::string_view magic = in.substr(0, tcp_wire::kMagic.size());
    if (magic != tcp_wire::kMagic.substr(0, magic.size())) return refuse(c, "sent garbage");
    if (in.size() < before_token) return;
    const auto size = tcp_wire::read_as<uint32_t>(in.substr(tcp_wire::kMagic.size()));
    if (size > tcp_wire::kMaxToken) return refuse(c, "sent garbage");
    if (in.size() < before_token + size) return;
    if (!same_secret(in.substr(before_token, size), token)) return refuse(c, "came");
    c.known = true;
    c.in.erase(0, before_token + size);
    c.out += tcp_wire::kMagic;
    c.out += tcp_wire::bytes_of(tcp_wire::Answer::kYes);
  }

  void refuse(Connection& c, std::string_view what) {
    tell(c, what);
    c.in.clear();
    c.out = std::string(tcp_wire::kMagic) + tcp_wire::bytes_of(tcp_wire::Answer::kNo);
    c.closing = true;
    c.hello = Deadline(Millis(1000));  // to fetch the answer
  }

  /// Returns whether there was a whole question.
  bool read_question(Connection& c) {
    if (c.in.size() < sizeof(tcp_wire::Question)) return false;
    const auto question = tcp_wire::read_as<tcp_wire::Question>(c.in);
    if (question.key_bytes > tcp_wire::kMaxKey || question.value_bytes > tcp_wire::kMaxValue) {
      c.closed = true;
      return false;
    }
    const size_t size = sizeof question + question.key_bytes + question.value_bytes;
    if (c.in.size() < size) return false;
    std::string key = c.in.substr(sizeof question, question.key_bytes);
    if (question.ask == tcp_wire::Ask::kSet) {
      values[key] = c.in.substr(sizeof question + question.key_bytes, question.value_bytes);
      reply(c, tcp_wire::Answer::kYes, {});
      for (Connection& other : connections) {
        if (other.pending && other.pending->key == key) answer_pending(other);
      }
    } else if (question.ask == tcp_wire::Ask::kGet) {
      c.pending = Pending{std::move(key), Deadline(Millis(question.timeout_ms))};
      if (values.count(c.pending->key) != 0 || question.timeout_ms == 0) answer_pending(c);
    } else {
      c.closed = true;
    }
    c.in.erase(0, size);
    return true;
  }

  void answer_pending(Connection& c) {
    const auto found = values.find(c.pending->key);
    c.pending.reset();
    if (found == values.end()) {
      reply(c, tcp_wire::Answer::kTimeout, {});
    } else {
      reply(c, tcp_wire::Answer::kYes, found->second);
    }
  }

  static void reply(Connection& c, tcp_wire::Answer answer, std::string_view value) {
    c.out += tcp_wire::bytes_of(tcp_wire::Reply{answer, static_cast<uint32_t>(value.size())});
    c.out += value;
  }

  static void write_to(Connection& c) {
    const ssize_t sent = ::send(c.socket.get(), c.out.data(), c.out.size(), MSG_NOSIGNAL);
    if (sent > 0) c.out.erase(0, static_cast<size_t>(sent));
    if (sent < 0 && errno != EAGAIN && errno != EINTR) c.closed = true;
    if (c.closing && c.out.empty()) c.closed = true;
  }

  const std::string token;
  const std::function<void(const std::string&)> on_stranger;
  Descriptor listener, stop;
  std::list<Connection> connections;
  std::map<std::string, std::string> values;
  std::thread thread;
};

TcpStoreServer::TcpStoreServer(uint16_t port, std::string job_token,
                               std::function<void(const std::string& text)> on_stranger)
    : impl_(std::make_unique<Impl>(port, std::move(job_token), std::move(on_stranger))) {}

TcpStoreServer::~TcpStoreServer() = default;

uint16_t TcpStoreServer::port() const {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  ::getsockname(impl_->listener.get(), reinterpret_cast<sockaddr*>(&address), &size);
  // The port has the same place in both families.
  return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

}  // namespace zpp
