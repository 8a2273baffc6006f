// How an Envelope and its sender share the 64 bits of a UCX tag:
// channel 10, sender 14, operation 4, sequence number 20, step 16.
#pragma once

#include <cstdint>

#include "comm/transport.h"

namespace zpp::ucx_tag {

constexpr int kSenderBits = 14;
constexpr uint32_t kChannels = 1u << 10, kOwnChannel = kChannels - 1;
constexpr int kMaxRanks = 1 << kSenderBits;
// Which bits decide whether a message meets a receive; the others are compared afterwards.
constexpr uint64_t kFromSender = ~uint64_t{0} << 40, kFromAnybody = ~uint64_t{0} << 54;
constexpr uint32_t kSequences = 1u << 20, kSteps = 1u << 16;

constexpr uint64_t pack(int sender, const Envelope& e) {
  return (uint64_t{e.channel} << 54) | (static_cast<uint64_t>(sender) << 40) |
         (static_cast<uint64_t>(e.operation) << 36) | (uint64_t{e.sequence % kSequences} << 16) |
         uint64_t{e.step % kSteps};
}

constexpr int sender_of(uint64_t tag) {
  return static_cast<int>((tag >> 40) & (uint64_t{kMaxRanks} - 1));
}

constexpr Envelope envelope_of(uint64_t tag) {
  return {.channel = static_cast<uint32_t>(tag >> 54),
          .operation = static_cast<Operation>((tag >> 36) & 15),
          .sequence = static_cast<uint32_t>(tag >> 16) % kSequences,
          .step = static_cast<uint32_t>(tag) % kSteps};
}

}  // namespace zpp::ucx_tag
