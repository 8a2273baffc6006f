// A connected mesh of ranks: messages between two of them, with deadlines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/stream.h"

namespace zpp {

enum class Operation : uint8_t {
  kAllGather,
  kReduceScatter,
  kAllReduce,
  kBroadcast,
  kAllToAll,
  kBarrier,
};
const char* to_string(Operation operation);

/// What every message carries beside its bytes. Messages from one rank to another on one channel
/// arrive in the order in which they were sent and meet the receives in the order in which those
/// were posted; operation, sequence number, step or size that disagree are an error that names both
/// sides.
struct Envelope {
  uint32_t channel = 0;  // < 2^10: one per communicator of a transport
  Operation operation = Operation::kBarrier;
  uint32_t sequence = 0;  // of the collective on its communicator, modulo 2^20
  uint32_t step = 0;      // of the collective's algorithm, modulo 2^16

  bool operator==(const Envelope&) const = default;
};
/// "all-gather number 12 (channel 0, step 3)".
std::string to_string(const Envelope& envelope);

/// Point to point, not blocking until wait(). One thread at a time (each communication stream has a
/// transport of its own); abort() may come from any thread.
class Transport {
 public:
  using Ticket = uint64_t;

  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// "rank 3 (host gpu7, pid 4711)", for messages.
  virtual std::string describe(int rank) const = 0;

  /// Starts a message; the bytes must stay as they are until wait() returned.
  virtual Ticket send(int peer, const Envelope& envelope, std::span<const std::byte> bytes) = 0;
  /// Posts a buffer for the next message of `peer` on the channel.
  virtual Ticket receive(int peer, const Envelope& envelope, std::span<std::byte> bytes) = 0;
  /// Blocks until the ticket's bytes may be reused or read. Other tickets need not make progress
  /// meanwhile: two ranks that exchange messages wait for what they receive first.
  /// Errors:  kTimeout after `timeout`, naming peer, operation, sequence number, bytes and host;
  ///          kPeerLost when the peer has died, aborted (with its reason) or closed;
  ///          kFailedPrecondition when both sides are in different operations
  virtual void wait(Ticket ticket, Millis timeout) = 0;

  /// Makes every blocked and later call here fail with kPeerLost and tells the peers why, best
  /// effort.
  virtual void abort(const Error& why) noexcept = 0;
};

}  // namespace zpp
