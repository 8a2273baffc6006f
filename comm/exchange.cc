#include "comm/exchange.h"

namespace zpp {

std::byte* Scratch::get(int64_t bytes) {
  constexpr size_t kAlign = 64;
  if (bytes > bytes_) {
    memory_.reset();
    bytes_ = 0;
    memory_.reset(new std::byte[static_cast<size_t>(bytes) + kAlign]);
    bytes_ = bytes;
  }
  const size_t past = reinterpret_cast<uintptr_t>(memory_.get()) % kAlign;
  return memory_.get() + (past == 0 ? 0 : kAlign - past);
}

Exchange::Exchange(const ExchangePlace& place, const Envelope& stamp)
    : place_(place), stamp_(stamp), sent_bytes_(static_cast<size_t>(place.topology.levels()) + 1) {}

Envelope Exchange::stamped(int64_t step) const {
  constexpr uint32_t kPhaseBits = 2, kStepBits = 14;  // 16 together
  Envelope envelope = stamp_;
  envelope.step = (phase_ % (1u << kPhaseBits) << kStepBits) |
                  (static_cast<uint32_t>(step) % (1u << kStepBits));
  return envelope;
}

Exchange::Ticket Exchange::send(int member, int64_t step, std::span<const std::byte> bytes) {
  const int peer = place_.members[static_cast<size_t>(member)];
  const LinkClass link = place_.topology.link(place_.transport.rank(), peer);
  sent_bytes_[static_cast<size_t>(link)] += static_cast<int64_t>(bytes.size());
  return place_.transport.send(peer, stamped(step), bytes);
}

Exchange::Ticket Exchange::receive(int member, int64_t step, std::span<std::byte> bytes) {
  return place_.transport.receive(place_.members[static_cast<size_t>(member)], stamped(step),
                                  bytes);
}

void Exchange::wait(Tickets& tickets) {
  for (Ticket ticket : tickets) wait(ticket);
  tickets.clear();
}

}  // namespace zpp
