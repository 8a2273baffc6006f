// Messages, their tickets, and what happens when a peer is lost.
//
// Any error of a wait() ends the transport: peers are told, endpoints are closed, receives are taken
// back, all before the error is thrown. So no byte is written into the caller's buffers afterwards.
#include "comm/ucx_transport.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "comm/deadline.h"
#include "comm/descriptor.h"
#include "comm/process_watch.h"
#include "comm/ucx_messages.h"
#include "comm/ucx_tag.h"
#include "comm/ucx_worker.h"
#include "core/available_cores.h"

namespace zpp {

namespace {

using Clock = std::chrono::steady_clock;

// A peer that is gone may have sent something before: what is on its way gets this long.
constexpr Millis kGrace{100};
// Telling peers, closing endpoints: as long as this at most, each.
constexpr Millis kFarewell{500};
// Longer than the gap between two messages of one collective.
constexpr std::chrono::microseconds kSpin{20};
constexpr int kPollsPerLook = 16;

enum class Note : uint8_t { kBye, kAbort };
constexpr size_t kNoteHeader = 1 + sizeof(uint32_t), kMaxNote = 2048;
constexpr Envelope kNoteEnvelope{.channel = ucx_tag::kOwnChannel};

struct Peer {
  std::string address;
  ucp_ep_h endpoint = nullptr;
  ProcessWatch process;
  bool said_bye = false;
  std::string lost;  // how, unless it is there
  /// Whether its end is noticed through its process: then UCX need not notice it, which lets it use
  /// the kernel's copies between processes.
  bool watched() const { return process.watches(); }
  bool gone() const { return said_bye || !lost.empty(); }
};

void on_lost(void* peer, ucp_ep_h, ucs_status_t status) {
  std::string& lost = static_cast<Peer*>(peer)->lost;
  if (lost.empty()) lost = fmt::format("its connection failed: {}", ucs_status_string(status));
}

class UcxTransport final : public Transport {
 public:
  UcxTransport(Store& store, const Rendezvous& place, int plane, const UcxOptions& options)
      : place_(place), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), worker_(options) {
    const auto neighbours =
        std::count(place.hosts.begin(), place.hosts.end(), place.hosts[index(place.rank)]);
    if (neighbours <= available_cores()) spin_ = kSpin;
    exchange_addresses(store, plane, options.connect_timeout);
    post_note();
  }

  ~UcxTransport() override {
    const std::lock_guard lock(mutex_);
    if (!failure_) {
      tell_peers(Note::kBye, place_.rank, "");
      linger([this] { return everybody(&Peer::gone); });
      close_endpoints();
    }
    take_back(note_);
    note_.free_request();
  }

  int rank() const override { return place_.rank; }
  int size() const override { return place_.world(); }
  std::string describe(int rank) const override { return place_.describe(rank); }

  Ticket send(int peer, const Envelope& envelope, std::span<const std::byte> bytes) override {
    const std::lock_guard lock(mutex_);
    UcxMessage& message = add(peer, envelope, bytes.size(), false);
    const ucp_ep_h endpoint = peers_[index(peer)].endpoint;
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    param.cb.send = UcxMessage::on_sent;
    param.user_data = &message;
    message.started(endpoint == nullptr
                        ? UCS_STATUS_PTR(UCS_ERR_NOT_CONNECTED)
                        : ucp_tag_send_nbx(endpoint, bytes.data(), bytes.size(),
                                           ucx_tag::pack(rank(), envelope), &param));
    return message.ticket();
  }

  Ticket receive(int peer, const Envelope& envelope, std::span<std::byte> bytes) override {
    const std::lock_guard lock(mutex_);
    UcxMessage& message = add(peer, envelope, bytes.size(), true);
    post(message, ucx_tag::pack(peer, envelope), ucx_tag::kFromSender, bytes.data());
    return message.ticket();
  }

  void wait(Ticket ticket, Millis timeout) override {
    std::unique_lock lock(mutex_);
    if (failure_) throw *failure_;
    UcxMessage& message = messages_.find(ticket);
    complete(lock, message, timeout);
    if (message.status != UCS_OK || message.receives) check_outcome(message);
    messages_.remove(message);
  }

  void abort(const Error& why) noexcept override {
    {
      const std::lock_guard lock(abort_mutex_);
      if (!abort_reason_) abort_reason_ = why.what();
    }
    abort_asked_.store(true);
    const uint64_t one = 1;
    if (::write(wake_.get(), &one, sizeof one) < 0) return;
    const std::lock_guard lock(mutex_);
    if (!failure_) abort_here();
  }

 private:
  static size_t index(int rank) { return static_cast<size_t>(rank); }

  void exchange_addresses(Store& store, int plane, Millis timeout) {
    const auto all =
        exchange_texts(store, place_, fmt::format("ucx/{}", plane), worker_.address(), timeout);
    peers_.resize(all.size());
    for (size_t r = 0; r < all.size(); ++r) peers_[r].address = all[r];
  }

  // --- Messages -------------------------------------------------------------------

  UcxMessage& add(int peer, const Envelope& envelope, size_t bytes, bool receives) {
    if (failure_) throw *failure_;
    if (peer < 0 || peer >= size()) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("transport: there is no rank {} of {}", peer, size()));
    }
    if (envelope.channel >= ucx_tag::kOwnChannel) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("transport: channels are below {}, {} was asked for",
                              ucx_tag::kOwnChannel, envelope.channel));
    }
    connect(peer);
    return messages_.add(peer, envelope, bytes, receives);
  }

  void connect(int rank) {
    Peer& peer = peers_[index(rank)];
    if (peer.endpoint != nullptr || peer.gone()) return;
    const bool near = place_.hosts[index(rank)] == place_.hosts[index(place_.rank)] &&
                      place_.pids[index(rank)] != ::getpid();
    if (near) peer.process = ProcessWatch(place_.pids[index(rank)]);
    try {
      peer.endpoint = worker_.connect(peer.address, peer.watched(), on_lost, &peer);
    } catch (const Error& error) {
      peer.lost = error.what();
    }
  }

  void post(UcxMessage& message, uint64_t tag, uint64_t mask, void* data) {
    ucp_request_param_t param{};
    // Information about a message that is already there comes through the callback only.
    param.op_attr_mask =
        UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    param.cb.recv = UcxMessage::on_received;
    param.user_data = &message;
    message.started(ucp_tag_recv_nbx(worker_.handle(), data, message.bytes, tag, mask, &param));
  }

  // --- Waiting --------------------------------------------------------------------

  void complete(std::unique_lock<std::mutex>& lock, UcxMessage& message, Millis timeout) {
    const Deadline deadline(timeout);
    Clock::time_point idle_since = Clock::now();
    while (!message.done) {
      bool moved = false;
      for (int i = 0; i < kPollsPerLook && !message.done; ++i) moved |= worker_.progress();
      if (message.done) return;
      if (abort_asked_.load()) abort_here();
      read_note();
      if (failure_) throw *failure_;
      const Clock::time_point now = Clock::now();
      if (moved) idle_since = now;
      if (peers_[index(message.peer)].gone() && now - idle_since > kGrace) fail(lost(message));
      if (now >= deadline.at()) fail(timed_out(message, timeout));
      if (now - idle_since >= spin_) sleep(lock, message, deadline);
    }
  }

  /// Until something has happened, for a while at most.
  void sleep(std::unique_lock<std::mutex>& lock, const UcxMessage& message,
             const Deadline& deadline) {
    Peer& peer = peers_[index(message.peer)];
    if (!worker_.arm()) return;
    std::array<pollfd, 3> polled = {{{worker_.event_fd(), POLLIN, 0},
                                     {wake_.get(), POLLIN, 0},
                                     {peer.gone() ? -1 : peer.process.descriptor(), POLLIN, 0}}};
    const Millis limit = deadline.left(peer.gone() ? kGrace : Millis(1000));
    lock.unlock();
    ::poll(polled.data(), polled.size(), static_cast<int>(limit.count()));
    lock.lock();
    if (peer.lost.empty() && peer.process.ended()) peer.lost = "its process has ended";
  }

  /// Progress until `done`, for a moment at most.
  template <class Done>
  void linger(const Done& done) {
    const Deadline deadline(kGrace);
    while (!done() && !deadline.passed()) {
      if (!worker_.progress() && worker_.arm()) {
        pollfd polled{worker_.event_fd(), POLLIN, 0};
        ::poll(&polled, 1, static_cast<int>(deadline.left().count()));
      }
      read_note();
    }
  }

  void check_outcome(const UcxMessage& message) {
    const uint64_t expected = ucx_tag::pack(message.peer, message.envelope);
    if (message.status != UCS_OK && message.status != UCS_ERR_MESSAGE_TRUNCATED) {
      // It may have said why.
      linger([this] { return failure_.has_value(); });
      if (failure_) throw *failure_;
      Peer& peer = peers_[index(message.peer)];
      if (!peer.gone()) peer.lost = ucs_status_string(message.status);
      fail(lost(message));
    }
    const ucp_tag_recv_info_t& got = message.info;
    if (message.receives && (got.sender_tag != expected || got.length != message.bytes)) {
      fail(
          Error(Code::kFailedPrecondition,
                fmt::format("{} is in {} and wants {} bytes, but {} sent {} bytes of {}: the ranks "
                            "do not call the same collectives in the same order",
                            describe(rank()), to_string(message.envelope), message.bytes,
                            describe(message.peer), got.length,
                            to_string(ucx_tag::envelope_of(got.sender_tag)))));
    }
  }

  Error timed_out(const UcxMessage& message, Millis timeout) const {
    return Error(Code::kTimeout,
                 fmt::format("{}: nothing for {:.1f} s; is it stopped, or somewhere else?",
                             waiting(message), std::chrono::duration<double>(timeout).count()));
  }

  std::string waiting(const UcxMessage& message) const {
    return fmt::format("{} waiting for {} {} {}, {} bytes", describe(rank()),
                       describe(message.peer), message.receives ? "to send" : "to take",
                       to_string(message.envelope), message.bytes);
  }

  Error lost(const UcxMessage& message) const {
    const Peer& peer = peers_[index(message.peer)];
    return Error(
        Code::kPeerLost,
        fmt::format("{} is lost ({}); {}", describe(message.peer),
                    peer.said_bye ? "it has closed this transport" : peer.lost, waiting(message)));
  }

  // --- The end ----------------------------------------------------------------------

  [[noreturn]] void fail(const Error& error) {
    end(error, place_.rank, error.what());
    throw error;
  }

  void abort_here() {
    std::string why;
    {
      const std::lock_guard lock(abort_mutex_);
      why = *abort_reason_;
    }
    end(Error(Code::kPeerLost, fmt::format("{} aborted: {}", describe(rank()), why)), rank(), why);
  }

  void end(const Error& error, int origin, const std::string& why) {
    failure_ = error;
    tell_peers(Note::kAbort, origin, why);
    close_endpoints();
  }

  void tell_peers(Note note, int origin, const std::string& why) {
    farewell_.assign(1, static_cast<char>(note));
    const auto from = static_cast<uint32_t>(origin);
    farewell_.append(reinterpret_cast<const char*>(&from), sizeof from);
    farewell_.append(why, 0, kMaxNote - kNoteHeader);
    const ucp_request_param_t plain{};
    std::vector<ucp_ep_h> told;
    std::vector<ucs_status_ptr_t> requests;
    for (const Peer& peer : peers_) {
      if (peer.endpoint == nullptr || peer.gone()) continue;
      told.push_back(peer.endpoint);
      requests.push_back(ucp_tag_send_nbx(peer.endpoint, farewell_.data(), farewell_.size(),
                                          ucx_tag::pack(rank(), kNoteEnvelope), &plain));
    }
    worker_.flush(told, kFarewell);
    for (const ucs_status_ptr_t request : requests) {
      if (UCS_PTR_IS_PTR(request)) ucp_request_free(request);
    }
  }

  /// Nothing is read from or written to the buffers of messages after this.
  void close_endpoints() {
    std::vector<ucp_ep_h> open;
    for (Peer& peer : peers_) {
      const ucp_ep_h endpoint = std::exchange(peer.endpoint, nullptr);
      if (endpoint != nullptr && !peer.watched()) open.push_back(endpoint);
    }
    for (UcxMessage& message : messages_.all()) take_back(message);
    worker_.close(open, kFarewell);
    const Deadline deadline(kGrace);
    for (UcxMessage& message : messages_.all()) {
      while (message.receives && message.request != nullptr && !message.done &&
             !deadline.passed()) {
        worker_.progress();
      }
      message.free_request();
    }
  }

  void take_back(UcxMessage& message) {
    if (message.request == nullptr || !message.receives || message.done) return;
    ucp_request_cancel(worker_.handle(), message.request);
  }

  bool everybody(bool (Peer::*is)() const) const {
    return std::all_of(peers_.begin(), peers_.end(),
                       [is](const Peer& peer) { return peer.endpoint == nullptr || (peer.*is)(); });
  }

  // --- Notes: what transports tell each other ---------------------------------------

  void post_note() {
    note_ = {};
    note_.bytes = kMaxNote;
    note_.receives = true;
    post(note_, ucx_tag::pack(0, kNoteEnvelope), ucx_tag::kFromAnybody, note_text_.data());
  }

  void read_note() {
    while (note_.done && !failure_) {
      note_.free_request();
      if (note_.status != UCS_OK || note_.info.length < kNoteHeader) return;
      const int sender = ucx_tag::sender_of(note_.info.sender_tag);
      uint32_t origin = 0;
      std::memcpy(&origin, note_text_.data() + 1, sizeof origin);
      const std::string why(note_text_.data() + kNoteHeader, note_.info.length - kNoteHeader);
      const Note kind{static_cast<uint8_t>(note_text_[0])};
      if (sender >= size() || origin >= index(size())) return;
      peers_[index(sender)].said_bye = true;
      post_note();
      if (kind != Note::kAbort) continue;
      const int by = static_cast<int>(origin);
      end(Error(Code::kPeerLost, fmt::format("{} aborted: {}", describe(by), why)), by, why);
    }
  }

  const Rendezvous place_;
  const Descriptor wake_;
  std::chrono::nanoseconds spin_{0};

  std::mutex mutex_;  // of what follows, up to what abort() leaves for the waiting thread
  std::vector<Peer> peers_;
  UcxMessages messages_;
  UcxMessage note_;
  std::array<char, kMaxNote> note_text_;
  std::string farewell_;
  std::optional<Error> failure_;
  UcxWorker worker_;  // calls back into what stands above until it is gone

  std::atomic<bool> abort_asked_{false};
  std::mutex abort_mutex_;
  std::optional<std::string> abort_reason_;
};

}  // namespace

std::unique_ptr<Transport> make_ucx_transport(Store& store, const Rendezvous& place, int plane,
                                              const UcxOptions& options) {
  if (place.world() > ucx_tag::kMaxRanks) {
    throw Error(Code::kInvalidArgument, fmt::format("ucx: {} ranks, at most {} are possible",
                                                    place.world(), ucx_tag::kMaxRanks));
  }
  return std::make_unique<UcxTransport>(store, place, plane, options);
}

}  // namespace zpp
