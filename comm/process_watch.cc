#include "comm/process_watch.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace zpp {

ProcessWatch::ProcessWatch(int64_t pid)
    : descriptor_(static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0U))),
      never_there_(!descriptor_.valid() && errno == ESRCH) {}

bool ProcessWatch::ended() const {
  if (!watches()) return never_there_;
  pollfd polled{descriptor(), POLLIN, 0};
  return ::poll(&polled, 1, 0) > 0;
}

}  // namespace zpp
