// The sends and receives of a UCX transport that are under way. Private to it.
#pragma once

#include <fmt/format.h>
#include <ucp/api/ucp.h>

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "comm/transport.h"
#include "core/error.h"

namespace zpp {

/// One of them; UCX's callbacks say how it ended.
struct UcxMessage {
  int peer = 0;
  Envelope envelope;
  size_t bytes = 0;
  bool receives = false;

  void* request = nullptr;  // UCX's, while it or its outcome is of interest
  bool done = false;
  ucs_status_t status = UCS_OK;
  ucp_tag_recv_info_t info{};  // of the message that a receive met

  bool used = false;
  uint32_t place = 0, generation = 0;

  Transport::Ticket ticket() const { return (uint64_t{generation} << 32) | place; }

  /// Takes what ucp_tag_send_nbx or ucp_tag_recv_nbx returned.
  void started(ucs_status_ptr_t outcome) {
    if (UCS_PTR_IS_PTR(outcome)) {
      request = outcome;
    } else if (!done) {
      status = UCS_PTR_STATUS(outcome);
      done = true;
    }
  }
  void free_request() {
    if (request != nullptr) ucp_request_free(std::exchange(request, nullptr));
  }

  static void on_sent(void*, ucs_status_t status, void* message) {
    static_cast<UcxMessage*>(message)->status = status;
    static_cast<UcxMessage*>(message)->done = true;
  }
  static void on_received(void*, ucs_status_t status, const ucp_tag_recv_info_t* info,
                          void* message) {
    static_cast<UcxMessage*>(message)->info = *info;
    on_sent(nullptr, status, message);
  }
};

/// Messages by ticket. They stay where they are: callbacks point at them.
class UcxMessages {
 public:
  UcxMessage& add(int peer, const Envelope& envelope, size_t bytes, bool receives) {
    if (free_.empty()) {
      free_.push_back(static_cast<uint32_t>(messages_.size()));
      messages_.emplace_back();
    }
    const uint32_t place = free_.back();
    free_.pop_back();
    UcxMessage& message = messages_[place];
    message = {.peer = peer,
               .envelope = envelope,
               .bytes = bytes,
               .receives = receives,
               .used = true,
               .place = place,
               .generation = message.generation + 1};
    return message;
  }

  /// Errors: kInternal for a ticket that was never given or is done with
  UcxMessage& find(Transport::Ticket ticket) {
    const size_t place = ticket & 0xffffffffu;
    if (place >= messages_.size() || !messages_[place].used ||
        messages_[place].ticket() != ticket) {
      throw Error(Code::kInternal, fmt::format("transport: ticket {} is not pending", ticket));
    }
    return messages_[place];
  }

  void remove(UcxMessage& message) {
    message.free_request();
    message.used = false;
    free_.push_back(message.place);
  }

  std::deque<UcxMessage>& all() { return messages_; }

 private:
  std::deque<UcxMessage> messages_;
  std::vector<uint32_t> free_;
};

}  // namespace zpp
