// Watches over the processes that a launcher has started: passes their output and its signals on,
// and when one fails ends the others.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/log.h"
#include "tools/exit_code.h"
#include "tools/launch_process.h"

namespace zpp {

/// The signals that a launcher lives on, as something to read from. Blocks them for this thread and
/// those that it starts later, so make it before any.
class SignalReader {
 public:
  SignalReader();
  ~SignalReader();  // as before
  SignalReader(const SignalReader&) = delete;
  SignalReader& operator=(const SignalReader&) = delete;
  int fd() const { return fd_; }
  /// The next one that has come, without blocking.
  std::optional<int> next();

 private:
  sigset_t before_ = {};
  int fd_ = -1;
};

struct Supervised {
  ProcessSpec process;
  /// "rank 3 (host gpu7, pid 4711)" with {} in the place of the pid.
  std::string description;
  /// Where its last words are if it had none for stderr; may be empty.
  std::string log_file = {};
  /// Its output as it comes; otherwise lines of stderr only, after "[name] ".
  bool show_raw = false;
  /// Signals go as lines through its standard input to a launcher on another machine, for which the
  /// end of the input is the end.
  bool remote = false;
};

struct SupervisorOptions {
  /// After a failure the others may end by themselves, then SIGTERM, then SIGKILL.
  std::chrono::milliseconds settle{2500}, grace{4000};
  /// Where this launcher gets its signals from when it is itself remote; -1: only as signals.
  int control_fd = -1;
  /// Asked often: why the job fails elsewhere, if it does.
  std::function<std::optional<std::string>()> failed_elsewhere;
  /// Told at once of the first failure here.
  std::function<void(const std::string& text)> on_failure;
};

struct SupervisorResult {
  ExitCode code = kExitDone;
  std::string failure;  // what failed first, empty if nothing did
  bool stop_requested = false;
};

/// Starts the processes and returns when none is left.
/// Errors:  kIo if one cannot be started
SupervisorResult supervise(const std::vector<Supervised>& processes, SignalReader& signals,
                           const SupervisorOptions& options, Log& log);

}  // namespace zpp
