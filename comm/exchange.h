// One collective while it runs: what an algorithm sends and receives with.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "comm/topology.h"
#include "comm/transport.h"
#include "core/cpu_stream.h"

namespace zpp {

/// Memory that the algorithms of one stream use, one after the other. Grows, never shrinks.
class Scratch {
 public:
  /// At least `bytes`, aligned to 64, uninitialised; invalidates what was handed out before.
  std::byte* get(int64_t bytes);

 private:
  std::unique_ptr<std::byte[]> memory_;
  int64_t bytes_ = 0;
};

/// Where an algorithm runs: its group, its transport.
struct ExchangePlace {
  Transport& transport;
  const Topology& topology;
  const std::vector<int>& members;
  int me;  // among the members
  Millis deadline;
  Isa isa;
  Scratch& scratch;
};

class Exchange {
 public:
  using Ticket = Transport::Ticket;
  using Tickets = std::vector<Ticket>;

  /// `stamp` marks every message; its step counts from there.
  Exchange(const ExchangePlace& place, const Envelope& stamp);

  int me() const { return place_.me; }
  int size() const { return static_cast<int>(place_.members.size()); }
  Isa isa() const { return place_.isa; }
  std::byte* scratch(int64_t bytes) { return place_.scratch.get(bytes); }

  // Members are named by their number in the group. `step` tells messages of one pair of ranks
  // apart when they are checked; it may repeat.
  // Send first, then receive. A receive may at once invite bytes that a peer has announced; when both
  // directions share a connection these would delay our own announcement, and the directions would
  // take turns.
  Ticket send(int member, int64_t step, std::span<const std::byte> bytes);
  Ticket receive(int member, int64_t step, std::span<std::byte> bytes);
  void wait(Ticket ticket) { place_.transport.wait(ticket, place_.deadline); }
  /// All of them, and forgets them.
  void wait(Tickets& tickets);

  /// The second half of an algorithm that is made of two: its steps are told apart from the first's.
  void next_phase() { ++phase_; }
  /// Payload so far, by LinkClass.
  const std::vector<int64_t>& sent_bytes() const { return sent_bytes_; }

 private:
  Envelope stamped(int64_t step) const;

  const ExchangePlace place_;
  const Envelope stamp_;
  uint32_t phase_ = 0;
  std::vector<int64_t> sent_bytes_;
};

}  // namespace zpp
