#include "comm/local_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>

#include "comm/deadline.h"
#include "core/rng.h"

namespace zpp {
namespace {

using Clock = std::chrono::steady_clock;

/// A message on its way. The bytes stay with the sender until somebody copies them.
struct Message {
  enum State { kWaiting, kBeingCopied, kCopied, kWithdrawn };

  Envelope envelope;
  std::span<const std::byte> bytes;
  Clock::time_point arrival;
  State state = kWaiting;  // guarded by the mutex of the sender's box
};
using MessagePtr = std::shared_ptr<Message>;

/// Messages from one rank on one channel that nobody has taken yet.
struct Inbox {
  std::deque<MessagePtr> messages;
  uint64_t taken = 0;   // messages that have left the front of the queue
  uint64_t posted = 0;  // receives, of the receiving thread
};

/// What the threads share of one rank on one plane.
struct Box {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::pair<int, uint32_t>, Inbox> inboxes;  // by sender and channel
  std::vector<bool> closed;                           // by sender
  std::optional<std::string> aborted;                 // by whom and why
};

/// A pipe that carries one byte after the other.
struct Pipe {
  Clock::time_point free_at{};
};

struct Plane {
  explicit Plane(int ranks) : boxes(static_cast<size_t>(ranks)) {
    for (Box& box : boxes) box.closed.resize(static_cast<size_t>(ranks));
  }
  Box& box(int rank) { return boxes[static_cast<size_t>(rank)]; }
  std::deque<Box> boxes;
};

}  // namespace

struct LocalNetwork::Impl {
  Impl(const Topology& t, const LocalNetworkOptions& o)
      : topology(t),
        options(o),
        sent(static_cast<size_t>(t.world()),
             std::vector<int64_t>(static_cast<size_t>(t.levels()) + 1)) {}

  Plane& plane(int number) {
    const std::lock_guard lock(mutex);
    return planes.try_emplace(number, topology.world()).first->second;
  }

  /// Counts a message and says when its last byte arrives.
  Clock::time_point admit(int from, int to, int64_t bytes) {
    const LinkClass link = topology.link(from, to);
    const std::lock_guard lock(mutex);
    sent[static_cast<size_t>(from)][static_cast<size_t>(link)] += bytes;
    Clock::time_point arrival = Clock::now();
    if (static_cast<size_t>(link) < options.shapes.size()) {
      const LinkShape& shape = options.shapes[static_cast<size_t>(link)];
      if (shape.bytes_per_s > 0) {
        Pipe& pipe = pipes[{link, from / topology.group_size(std::max(0, link - 1))}];
        pipe.free_at = std::max(pipe.free_at, arrival) +
                       seconds(static_cast<double>(bytes) / shape.bytes_per_s);
        arrival = pipe.free_at;
      }
      arrival += seconds(shape.latency_s);
    }
    if (options.jitter_us > 0) {
      const RngKey key{options.jitter_seed, hash_name("local network"), 0};
      const uint64_t span = static_cast<uint64_t>(options.jitter_us) + 1;
      arrival += std::chrono::microseconds(key.bits(messages++) % span);
    }
    return arrival;
  }

  static Clock::duration seconds(double s) {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(s));
  }

  const Topology topology;
  const LocalNetworkOptions options;
  std::mutex mutex;  // of everything below
  std::map<int, Plane> planes;
  std::map<std::pair<LinkClass, int>, Pipe> pipes;  // by class and sending rank or group
  std::vector<std::vector<int64_t>> sent;           // by rank, then class
  uint64_t messages = 0;
};

namespace {

struct Pending {
  int peer;
  Envelope envelope;
  MessagePtr sent;             // a send
  uint64_t number = 0;         // a receive: of this message of the peer on the channel
  std::span<std::byte> bytes;  // a receive: into these
};

// A message was withdrawn because its sender failed: the reason gets this long to arrive.
constexpr Millis kGrace{200};

class LocalTransport final : public Transport {
 public:
  using Admit = std::function<Clock::time_point(int from, int to, int64_t bytes)>;

  LocalTransport(Plane& plane, int rank, Admit admit)
      : plane_(plane), rank_(rank), box_(plane.box(rank)), admit_(std::move(admit)) {}

  ~LocalTransport() override {
    withdraw();
    for (int peer = 0; peer < size(); ++peer) {
      Box& box = plane_.box(peer);
      const std::lock_guard lock(box.mutex);
      box.closed[static_cast<size_t>(rank_)] = true;
      box.changed.notify_all();
    }
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(plane_.boxes.size()); }
  std::string describe(int rank) const override { return fmt::format("rank {}", rank); }

  Ticket send(int peer, const Envelope& envelope, std::span<const std::byte> bytes) override {
    auto message = std::make_shared<Message>();
    message->envelope = envelope;
    message->bytes = bytes;
    message->arrival = admit_(rank_, peer, static_cast<int64_t>(bytes.size()));
    pending_.emplace(next_, Pending{peer, envelope, message, 0, {}});
    Box& box = plane_.box(peer);
    const std::lock_guard lock(box.mutex);
    box.inboxes[{rank_, envelope.channel}].messages.push_back(std::move(message));
    box.changed.notify_all();
    return next_++;
  }

  Ticket receive(int peer, const Envelope& envelope, std::span<std::byte> bytes) override {
    const std::lock_guard lock(box_.mutex);
    Inbox& inbox = box_.inboxes[{peer, envelope.channel}];
    pending_.emplace(next_, Pending{peer, envelope, nullptr, inbox.posted++, bytes});
    return next_++;
  }

  void wait(Ticket ticket, Millis timeout) override {
    const auto at = pending_.find(ticket);
    if (at == pending_.end()) {
      throw Error(Code::kInternal, fmt::format("transport: ticket {} is not pending", ticket));
    }
    const Pending pending = at->second;
    try {
      if (pending.sent) {
        wait_for_copy(pending, timeout);
      } else {
        copy(pending, take(pending, timeout), timeout);
      }
    } catch (...) {
      // The caller gives up its buffers with this exception.
      withdraw();
      throw;
    }
    pending_.erase(at);
  }

  void abort(const Error& why) noexcept override {
    for (int peer = 0; peer < size(); ++peer) {
      Box& box = plane_.box(peer);
      const std::lock_guard lock(box.mutex);
      if (!box.aborted) {
        box.aborted = peer == rank_ ? fmt::format("this rank aborted: {}", why.what())
                                    : fmt::format("rank {} aborted: {}", rank_, why.what());
      }
      box.changed.notify_all();
    }
  }

 private:
  std::string about(const Pending& p) const {
    return fmt::format("{} of {} bytes {} {}", to_string(p.envelope),
                       p.sent ? p.sent->bytes.size() : p.bytes.size(), p.sent ? "to" : "from",
                       describe(p.peer));
  }

  void check_alive(const Pending& p) const {
    if (box_.aborted) {
      throw Error(Code::kPeerLost, fmt::format("{}: {}", about(p), *box_.aborted));
    }
  }
  [[noreturn]] void time_out(const Pending& p, Millis timeout) const {
    throw Error(Code::kTimeout, fmt::format("{}: nothing after {} ms; is that rank stuck, or in "
                                            "another operation?",
                                            about(p), timeout.count()));
  }
  [[noreturn]] void closed(const Pending& p) const {
    throw Error(Code::kPeerLost,
                fmt::format("{}: {} has closed its transport", about(p), describe(p.peer)));
  }

  /// Waits on this rank's box until `done`, an abort or the deadline.
  template <class Done>
  void wait_until(std::unique_lock<std::mutex>& lock, const Pending& p, Millis timeout,
                  const Done& done) {
    const Deadline deadline(timeout);
    for (;;) {
      check_alive(p);
      if (done()) return;
      if (box_.closed[static_cast<size_t>(p.peer)]) closed(p);
      if (deadline.passed()) time_out(p, timeout);
      box_.changed.wait_until(lock, deadline.at());
    }
  }

  void wait_for_copy(const Pending& p, Millis timeout) {
    std::unique_lock lock(box_.mutex);
    wait_until(lock, p, timeout, [&] { return p.sent->state == Message::kCopied; });
  }

  MessagePtr take(const Pending& p, Millis timeout) {
    std::unique_lock lock(box_.mutex);
    Inbox& inbox = box_.inboxes[{p.peer, p.envelope.channel}];
    const auto is_there = [&] { return inbox.taken + inbox.messages.size() > p.number; };
    wait_until(lock, p, timeout, is_there);
    MessagePtr message = inbox.messages[static_cast<size_t>(p.number - inbox.taken)];
    while (Clock::now() < message->arrival) {
      check_alive(p);
      box_.changed.wait_until(lock, message->arrival);
    }
    check_match(p, *message);
    inbox.messages[static_cast<size_t>(p.number - inbox.taken)] = nullptr;
    while (!inbox.messages.empty() && inbox.messages.front() == nullptr) {
      inbox.messages.pop_front();
      ++inbox.taken;
    }
    return message;
  }

  void check_match(const Pending& p, const Message& message) const {
    if (message.envelope == p.envelope && message.bytes.size() == p.bytes.size()) return;
    throw Error(Code::kFailedPrecondition,
                fmt::format("{} expects {} of {} bytes from {}, which sent {} of {} bytes: the "
                            "ranks are in different collectives",
                            describe(rank_), to_string(p.envelope), p.bytes.size(),
                            describe(p.peer), to_string(message.envelope), message.bytes.size()));
  }

  void copy(const Pending& p, const MessagePtr& message, Millis timeout) {
    Box& sender = plane_.box(p.peer);
    bool withdrawn = false;
    {
      const std::lock_guard lock(sender.mutex);
      withdrawn = message->state == Message::kWithdrawn;
      if (!withdrawn) message->state = Message::kBeingCopied;
    }
    if (withdrawn) {
      // Its sender has failed, and is likely about to say why.
      std::unique_lock lock(box_.mutex);
      const Deadline grace(std::min(timeout, kGrace));
      while (!box_.closed[static_cast<size_t>(p.peer)] && !grace.passed()) {
        check_alive(p);
        box_.changed.wait_until(lock, grace.at());
      }
      check_alive(p);
      closed(p);
    }
    if (!p.bytes.empty()) std::memcpy(p.bytes.data(), message->bytes.data(), p.bytes.size());
    const std::lock_guard lock(sender.mutex);
    message->state = Message::kCopied;
    sender.changed.notify_all();
  }

  /// Nobody touches this rank's bytes any more.
  void withdraw() {
    std::unique_lock lock(box_.mutex);
    for (auto& [ticket, p] : pending_) {
      if (!p.sent) continue;
      box_.changed.wait(lock, [&] { return p.sent->state != Message::kBeingCopied; });
      if (p.sent->state == Message::kWaiting) p.sent->state = Message::kWithdrawn;
    }
    pending_.clear();
  }

  Plane& plane_;
  const int rank_;
  Box& box_;
  const Admit admit_;
  std::map<Ticket, Pending> pending_;
  Ticket next_ = 1;
};

}  // namespace

LocalNetwork::LocalNetwork(const Topology& topology, const LocalNetworkOptions& options)
    : impl_(std::make_unique<Impl>(topology, options)) {}

LocalNetwork::~LocalNetwork() = default;

std::unique_ptr<Transport> LocalNetwork::connect(int rank, int plane) {
  Impl* impl = impl_.get();
  return std::make_unique<LocalTransport>(
      impl->plane(plane), rank,
      [impl](int from, int to, int64_t bytes) { return impl->admit(from, to, bytes); });
}

std::vector<int64_t> LocalNetwork::sent_bytes(int rank) const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->sent[static_cast<size_t>(rank)];
}

}  // namespace zpp
