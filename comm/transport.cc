#include "comm/transport.h"

#include <fmt/format.h>

namespace zpp {

const char* to_string(Operation operation) {
  switch (operation) {
    case Operation::kAllGather:
      return "all-gather";
    case Operation::kReduceScatter:
      return "reduce-scatter";
    case Operation::kAllReduce:
      return "all-reduce";
    case Operation::kBroadcast:
      return "broadcast";
    case Operation::kAllToAll:
      return "all-to-all";
    case Operation::kBarrier:
      return "barrier";
  }
  return "unknown operation";
}

std::string to_string(const Envelope& envelope) {
  return fmt::format("{} number {} (channel {}, step {})", to_string(envelope.operation),
                     envelope.sequence, envelope.channel, envelope.step);
}

}  // namespace zpp
