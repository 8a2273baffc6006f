// What a program's exit status says, the same for all programs.
#pragma once

#include "core/error.h"

namespace zpp {

enum ExitCode : int {
  kExitDone = 0,
  kExitFailed = 1,    // while running
  kExitBadInput = 2,  // configuration, arguments or files
  kExitStopped = 3,   // by a signal, after the step was finished cleanly
};

/// Of an error that nothing could be done about.
inline ExitCode exit_code(const Error& error) {
  const bool input = error.code() == Code::kInvalidArgument || error.code() == Code::kNotFound;
  return input ? kExitBadInput : kExitFailed;
}

}  // namespace zpp
