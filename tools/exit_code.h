// What a program's exit status says, the same for all programs.
#pragma once

#include "core/error.h"

namespace zpp {

enum ExitCode : int {
  kExitDone = 0,
  kExitFailed = 1,    // while running
  kExitBadInput = 2,  // configuration, arguments or files
  kExitStopped = 3,   // by a signal, after the step was finished cleanly
  kExitPeerLost = 4,  // failed because another process of the job did
};

/// Of an error that nothing could be done about.
inline ExitCode exit_code(const Error& error) {
  switch (error.code()) {
    case Code::kInvalidArgument:
    case Code::kNotFound:
      return kExitBadInput;
    case Code::kPeerLost:
      return kExitPeerLost;
    default:
      return kExitFailed;
  }
}

}  // namespace zpp
