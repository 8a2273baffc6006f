#include "tools/launch_supervisor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "core/error.h"
#include "core/files.h"

namespace zpp {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGTSTP, SIGCHLD};
constexpr size_t kLastWords = 4096;
constexpr std::chrono::milliseconds kTick{100};

/// Writes everything; a reader that has gone away gets nothing more.
bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) {
      pollfd ready = {.fd = fd, .events = POLLOUT, .revents = 0};
      ::poll(&ready, 1, -1);
      continue;
    }
    if (n < 0) return false;
    text.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

/// One process and what it said.
class Child {
 public:
  explicit Child(const Supervised& spec)
      : spec_(spec),
        process_(spec.process),
        description_(fmt::format(fmt::runtime(spec.description), process_.pid())) {}

  const std::string& description() const { return description_; }
  Process& process() { return process_; }
  bool remote() const { return spec_.remote; }
  bool ended() const { return status_.has_value(); }
  int status() const { return *status_; }
  bool clean() const {
    return WIFEXITED(*status_) &&
           (WEXITSTATUS(*status_) == kExitDone || WEXITSTATUS(*status_) == kExitStopped);
  }
  /// Of several failures at once, which one is most likely the cause of the others.
  int weight() const {
    if (WIFSIGNALED(*status_)) return 2;
    return WEXITSTATUS(*status_) == kExitPeerLost ? 0 : 1;
  }

  void reap() {
    status_ = process_.poll();
    if (status_) read();
  }

  /// Passes on what there is to read. Returns false if it could not be written.
  bool read() {
    const bool out = drain(process_.output(), STDOUT_FILENO, false);
    return drain(process_.errors(), STDERR_FILENO, true) && out;
  }

  /// The rest of a line, when no more of it will come.
  void finish_line() {
    if (!line_.empty() && !quiet_) write_all(STDERR_FILENO, prefix() + line_ + "\n");
    line_.clear();
  }
  /// From now on only remembers.
  void quiet() { quiet_ = !spec_.show_raw; }

  void signal(int number) {
    if (ended()) return;
    if (spec_.remote) {
      process_.write(fmt::format("signal {}\n", number));
    } else {
      process_.signal(number);
    }
  }
  void kill() {
    if (ended()) return;
    process_.close_input();
    process_.signal(SIGKILL);
  }

  /// The end of its stderr or its log, indented.
  std::string last_words() const {
    std::vector<std::string> lines;
    std::string text;
    for (const char c : (words_.empty() ? logged() : words_) + "\n") {
      if (c == '\r') {
        text.clear();  // of a line that was to be overwritten
      } else if (c == '\n') {
        if (!text.empty()) lines.push_back("  " + text);
        text.clear();
      } else {
        text += c;
      }
    }
    if (lines.size() > 12) lines.erase(lines.begin(), lines.end() - 12);
    return lines.empty() ? "" : fmt::format("; its last words:\n{}", fmt::join(lines, "\n"));
  }

 private:
  /// The end of its log file.
  std::string logged() const {
    try {
      if (spec_.log_file.empty()) return "";
      const std::string text = read_file(spec_.log_file);
      return text.substr(text.size() - std::min(text.size(), kLastWords));
    } catch (const Error&) {
      return "";  // it did not get that far
    }
  }
  std::string prefix() const { return "[" + spec_.process.name + "] "; }

  bool drain(int from, int to, bool remembered) {
    std::array<char, 16384> buffer;
    bool ok = true;
    while (true) {
      const ssize_t n = ::read(from, buffer.data(), buffer.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return ok;
      const std::string_view text(buffer.data(), static_cast<size_t>(n));
      if (remembered) remember(text);
      if (spec_.show_raw) {
        ok = write_all(to, text) && ok;
      } else if (remembered && !quiet_) {
        show_lines(text);
      }
    }
  }
  void remember(std::string_view text) {
    words_ += text;
    if (words_.size() > kLastWords) words_.erase(0, words_.size() - kLastWords);
  }
  void show_lines(std::string_view text) {
    for (const char c : text) {
      if (c == '\n') {
        write_all(STDERR_FILENO, prefix() + line_ + "\n");
        line_.clear();
      } else {
        line_ += c;
      }
    }
  }

  const Supervised& spec_;
  Process process_;
  const std::string description_;
  std::optional<int> status_;
  std::string words_, line_;
  bool quiet_ = false;
};

class Supervisor {
 public:
  Supervisor(const std::vector<Supervised>& specs, SignalReader& signals,
             const SupervisorOptions& options, Log& log)
      : signals_(signals), options_(options), log_(log), control_fd_(options.control_fd) {
    for (const Supervised& spec : specs) children_.push_back(std::make_unique<Child>(spec));
  }

  SupervisorResult run() {
    while (running() > 0) {
      wait_for_something();
      while (const std::optional<int> number = signals_.next()) on_signal(*number);
      if (control_fd_ >= 0) read_control();
      for (const auto& child : children_) written_ = child->read() && written_;
      reap();
      if (!failed_ && options_.failed_elsewhere) {
        if (const auto text = options_.failed_elsewhere()) {
          elsewhere_ = true;
          fail(*text);
        }
      }
      wind_down();
    }
    return result();
  }

 private:
  size_t running() const {
    return static_cast<size_t>(std::count_if(children_.begin(), children_.end(),
                                             [](const auto& child) { return !child->ended(); }));
  }

  void wait_for_something() {
    std::vector<pollfd> fds;
    const auto add = [&fds](int fd) { fds.push_back({.fd = fd, .events = POLLIN, .revents = 0}); };
    add(signals_.fd());
    if (control_fd_ >= 0) add(control_fd_);
    for (const auto& child : children_) {
      // A process that has closed its output would wake us for ever.
      if (!child->ended() && !idle_) {
        add(child->process().output());
        add(child->process().errors());
      }
    }
    ::poll(fds.data(), fds.size(), static_cast<int>(kTick.count()));
    idle_ = std::any_of(fds.begin(), fds.end(), [](const pollfd& fd) {
      return (fd.revents & (POLLHUP | POLLIN)) == POLLHUP;
    });
  }

  void on_signal(int number) {
    if (number == SIGCHLD) return;
    if (number == SIGTSTP) {
      for (const auto& child : children_) child->signal(SIGSTOP);
      ::raise(SIGSTOP);  // until somebody continues us
      for (const auto& child : children_) child->signal(SIGCONT);
      return;
    }
    // A terminal that has gone away says it once; the ranks end as for SIGTERM.
    for (const auto& child : children_) child->signal(number == SIGHUP ? SIGTERM : number);
    const Clock::time_point now = Clock::now();
    if (!stop_requested_) {
      log_.info(fmt::format("{}: the ranks end after this step; again ends them at once",
                            signal_name(number)));
      first_stop_ = now;
    } else if (number != SIGUSR1 && now - first_stop_ > std::chrono::seconds(1)) {
      if (!failed_) fail(fmt::format("ended by a second {}", signal_name(number)));
    }
    stop_requested_ = true;
  }

  /// "signal 15" lines of the launcher that started this one; when it is gone, so are we.
  void read_control() {
    pollfd ready = {.fd = control_fd_, .events = POLLIN, .revents = 0};
    while (control_fd_ >= 0 && ::poll(&ready, 1, 0) > 0) {
      char c = 0;
      const ssize_t n = ::read(control_fd_, &c, 1);
      if (n < 0) return;
      if (n == 0) {
        control_fd_ = -1;
        if (!failed_) fail("the launcher that started this one has gone away");
        for (const auto& child : children_) child->kill();
      } else if (c != '\n') {
        control_ += c;
      } else {
        if (control_.starts_with("signal ")) on_signal(std::atoi(control_.c_str() + 7));
        control_.clear();
      }
    }
  }

  void reap() {
    const Child* cause = nullptr;
    for (const auto& child : children_) {
      if (child->ended()) continue;
      child->reap();
      if (!child->ended()) continue;
      child->finish_line();
      // What ended because we told it to has not failed.
      if (child->clean() || told_) continue;
      if (cause == nullptr || child->weight() > cause->weight()) cause = child.get();
    }
    if (cause == nullptr) return;
    // Who only lost a peer did not fail first, even if it was quicker to end.
    if (cause_ == nullptr || (cause_->weight() == 0 && cause->weight() > 0)) cause_ = cause;
    if (!failed_) {
      fail(fmt::format("{} {}", cause->description(), describe_status(cause->status())));
    }
  }

  std::string describe(const Child& child) const {
    return fmt::format("{} {}{}", child.description(), describe_status(child.status()),
                       child.last_words());
  }

  void fail(const std::string& text) {
    failed_ = Clock::now();
    text_ = text;
    for (const auto& child : children_) child->quiet();
    if (running() > 0) log_.error(fmt::format("{}; ending the others", text));
    if (options_.on_failure && !elsewhere_) options_.on_failure(text);
  }

  void wind_down() {
    if (!failed_) return;
    const auto passed = Clock::now() - *failed_;
    if (!told_ && passed > options_.settle) {
      told_ = true;
      for (const auto& child : children_) child->signal(SIGTERM);
    }
    if (passed > options_.settle + options_.grace) {
      for (const auto& child : children_) child->kill();
    }
  }

  SupervisorResult result() const {
    SupervisorResult r{.code = kExitDone, .failure = {}, .stop_requested = stop_requested_};
    if (failed_) {
      r.failure = cause_ != nullptr ? describe(*cause_) : text_;
      const bool bad_input = cause_ != nullptr && WIFEXITED(cause_->status()) &&
                             WEXITSTATUS(cause_->status()) == kExitBadInput;
      r.code = bad_input ? kExitBadInput : elsewhere_ ? kExitPeerLost : kExitFailed;
      return r;
    }
    for (const auto& child : children_) {
      if (WEXITSTATUS(child->status()) == kExitStopped) r.code = kExitStopped;
    }
    if (!written_) {
      r.failure = "the output could not be written";
      r.code = kExitFailed;
    }
    return r;
  }

  SignalReader& signals_;
  const SupervisorOptions& options_;
  Log& log_;
  std::vector<std::unique_ptr<Child>> children_;
  int control_fd_;
  std::string control_;  // part of a line
  bool idle_ = false, written_ = true;
  bool stop_requested_ = false;
  Clock::time_point first_stop_;
  std::optional<Clock::time_point> failed_;  // when
  bool told_ = false;                        // the others to end
  bool elsewhere_ = false;
  std::string text_;
  const Child* cause_ = nullptr;
};

sigset_t signal_set() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int number : kSignals) ::sigaddset(&set, number);
  return set;
}

}  // namespace

SignalReader::SignalReader() {
  const sigset_t set = signal_set();
  ::pthread_sigmask(SIG_BLOCK, &set, &before_);
  fd_ = ::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
  if (fd_ < 0) throw Error(Code::kIo, fmt::format("signalfd: {}", std::strerror(errno)));
}

SignalReader::~SignalReader() {
  ::close(fd_);
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

std::optional<int> SignalReader::next() {
  signalfd_siginfo info;
  if (::read(fd_, &info, sizeof(info)) != sizeof(info)) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

SupervisorResult supervise(const std::vector<Supervised>& processes, SignalReader& signals,
                           const SupervisorOptions& options, Log& log) {
  return Supervisor(processes, signals, options, log).run();
}

}  // namespace zpp
