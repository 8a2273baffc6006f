// The one error type of the project, and the process exit codes that tools map it to.
#pragma once

#include <stdexcept>
#include <string>

namespace zpp {

enum class Code {
  kInvalidArgument,     // the caller's input is wrong: config, arguments, shapes, file contents
  kFailedPrecondition,  // right call, wrong moment: a released parameter, a finished tape
  kNotFound,
  kIo,
  kTimeout,
  kPeerLost,
  kOutOfMemory,
  kInternal,
};

/// Name of a code as it appears in messages and logs, e.g. "invalid argument".
const char* code_name(Code code) noexcept;

/// Says what was expected, what was found and which object, with a hint when the usual cause is
/// known.
class Error : public std::runtime_error {
 public:
  explicit Error(Code code, const std::string& message, const char* file = __builtin_FILE(),
                 int line = __builtin_LINE());

  Code code() const noexcept { return code_; }
  /// Where it was thrown, "core/pool.cc:41"; kept out of what(), which people read.
  const std::string& where() const noexcept { return where_; }

 private:
  Code code_;
  std::string where_;
};

}  // namespace zpp
