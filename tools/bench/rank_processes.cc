#include "tools/bench/rank_processes.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "core/error.h"

namespace zpp {

namespace {

constexpr std::chrono::seconds kNoticeTime{10};

/// Does not return: a forked rank must not go on with what its parent was doing.
[[noreturn]] void be_rank(int rank, pid_t parent, const std::function<void(int rank)>& body) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  int code = 0;
  try {
    body(rank);
  } catch (const std::exception& error) {
    std::cerr << fmt::format("rank {}: {}\n", rank, error.what());
    code = 1;
  }
  std::cout.flush();
  std::fflush(nullptr);
  ::_exit(code);
}

std::string how_it_ended(int status) {
  return WIFSIGNALED(status) ? fmt::format("by signal {}", WTERMSIG(status))
                             : fmt::format("with status {}", WEXITSTATUS(status));
}

}  // namespace

void run_rank_processes(int count, const std::function<void(int rank)>& body) {
  using Clock = std::chrono::steady_clock;
  const pid_t self = ::getpid();
  std::vector<pid_t> left;
  const auto kill_all = [&left] {
    for (const pid_t pid : left) ::kill(pid, SIGKILL);
  };
  std::cout.flush();
  std::fflush(nullptr);
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < count; ++rank) {
    const pid_t pid = ::fork();
    if (pid == 0) be_rank(rank, self, body);
    if (pid < 0) {
      kill_all();
      throw Error(Code::kIo, fmt::format("cannot start rank {}: {}", rank, std::strerror(errno)));
    }
    ranks.push_back(pid);
    left.push_back(pid);
  }
  std::string first_bad;
  Clock::time_point until = Clock::time_point::max();
  while (!left.empty()) {
    for (int rank = 0; rank < count; ++rank) {
      const pid_t pid = ranks[static_cast<size_t>(rank)];
      int status = 0;
      if (std::find(left.begin(), left.end(), pid) == left.end() ||
          ::waitpid(pid, &status, WNOHANG) == 0) {
        continue;
      }
      std::erase(left, pid);
      if (status == 0 || !first_bad.empty()) continue;
      first_bad = fmt::format("rank {} (pid {}) ended {}", rank, pid, how_it_ended(status));
      until = Clock::now() + kNoticeTime;
    }
    if (Clock::now() > until) kill_all();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  if (!first_bad.empty()) throw Error(Code::kPeerLost, first_bad);
}

}  // namespace zpp
