// A child process that does not outlive its launcher.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace zpp {

struct ProcessSpec {
  std::string name;                    // for messages: "rank 3"
  std::string program;                 // file, or a name to look for in PATH
  std::vector<std::string> arguments;  // argv, its first the program's name
  /// "NAME=value", put into a copy of this process's environment; a bare "NAME" is taken out of it.
  std::vector<std::string> environment;
  std::vector<int> cores;  // that it may run on; empty: like this process
  /// Gives it a standard input to write() to, instead of /dev/null.
  bool has_input = false;
  std::string first_input;  // what it holds at first
};

/// In a process group of its own, so that a terminal's Ctrl-C reaches the launcher only and a signal
/// reaches everything that the process has started. Killed when the thread that started it ends.
class Process {
 public:
  /// Errors:  kIo naming the program that cannot be started
  explicit Process(const ProcessSpec& spec);
  /// Kills what still runs.
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  /// Ends of pipes, to read without blocking.
  int output() const { return output_; }
  int errors() const { return errors_; }
  /// Best effort: a process that does not read gets nothing.
  void write(std::string_view text);
  void close_input();
  /// To its whole group.
  void signal(int number) const;
  /// What waitpid() says, once it has ended.
  std::optional<int> poll();

 private:
  pid_t pid_ = -1;
  int input_ = -1, output_ = -1, errors_ = -1;
  std::optional<int> status_;
};

/// "ended with exit status 7", "was killed by signal 9 (SIGKILL)".
std::string describe_status(int wait_status);

/// "SIGTERM".
std::string signal_name(int number);

/// Cores of this process's affinity mask, in ascending order.
std::vector<int> affinity_cores();

}  // namespace zpp
