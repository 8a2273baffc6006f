// Ranks as forked processes, for tests of what only real processes can do: die, stop, share memory.
#pragma once

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "comm/rendezvous.h"
#include "comm/store.h"
#include "comm/ucx_transport.h"

namespace zpp::testing {

/// A directory that is gone after the test.
class ScratchDirectory {
 public:
  ScratchDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "zpp-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path_ = name;
  }
  ~ScratchDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// How a rank ended: "done", what it threw, or "signal 9", "exit 7", "still there".
using Outcomes = std::vector<std::string>;

/// Throws in a rank, where EXPECT_* would not be heard.
inline void require(bool condition, const std::string& text) {
  if (!condition) throw std::runtime_error("required: " + text);
}

/// Runs `body` in `world` forked processes and waits for all, at most for `limit`; then those that
/// are left are killed. Fork before the test starts threads of its own.
inline Outcomes run_processes(int world, const std::function<void(int rank)>& body,
                              std::chrono::seconds limit = std::chrono::seconds(20)) {
  struct Child {
    pid_t pid;
    FILE* said;
  };
  std::vector<Child> children;
  std::fflush(nullptr);
  for (int rank = 0; rank < world; ++rank) {
    Child child{0, std::tmpfile()};
    child.pid = ::fork();
    if (child.pid == 0) {
      const auto say = [&](const char* text) {
        std::fputs(text, child.said);
        std::fflush(child.said);
      };
      try {
        body(rank);
        say("done");
      } catch (const std::exception& error) {
        say(error.what());
      }
      ::_exit(0);
    }
    children.push_back(child);
  }
  const auto deadline = std::chrono::steady_clock::now() + limit;
  Outcomes outcomes;
  for (const Child& child : children) {
    int status = 0;
    bool late = false;
    while (::waitpid(child.pid, &status, WNOHANG) == 0) {
      ::usleep(2000);
      if (std::chrono::steady_clock::now() > deadline && !late) {
        late = true;
        ::kill(child.pid, SIGKILL);
      }
    }
    char text[8192] = "";
    std::rewind(child.said);
    text[std::fread(text, 1, sizeof text - 1, child.said)] = '\0';
    std::fclose(child.said);
    if (late) {
      outcomes.emplace_back("still there");
    } else if (WIFSIGNALED(status)) {
      outcomes.push_back("signal " + std::to_string(WTERMSIG(status)));
    } else if (text[0] == '\0') {
      outcomes.push_back("exit " + std::to_string(WEXITSTATUS(status)));
    } else {
      outcomes.emplace_back(text);
    }
  }
  return outcomes;
}

/// What a forked rank has: its place and a transport.
struct UcxRank {
  UcxRank(const std::filesystem::path& directory, int rank, int world, const UcxOptions& options)
      : store(make_file_store(directory, "test")),
        place(meet(*store, rank, world, {}, Millis(15000))),
        transport(make_ucx_transport(*store, place, 0, options)) {}

  std::unique_ptr<Store> store;
  Rendezvous place;
  std::unique_ptr<Transport> transport;
};

}  // namespace zpp::testing
