#include "core/error.h"

namespace zpp {

const char* code_name(Code code) noexcept {
  switch (code) {
    case Code::kInvalidArgument:
      return "invalid argument";
    case Code::kFailedPrecondition:
      return "failed precondition";
    case Code::kNotFound:
      return "not found";
    case Code::kIo:
      return "i/o error";
    case Code::kTimeout:
      return "timeout";
    case Code::kPeerLost:
      return "peer lost";
    case Code::kOutOfMemory:
      return "out of memory";
    case Code::kInternal:
      return "internal error";
  }
  return "unknown";
}

Error::Error(Code code, const std::string& message, const char* file, int line)
    : std::runtime_error(message),
      code_(code),
      where_(std::string(file) + ":" + std::to_string(line)) {}

}  // namespace zpp
