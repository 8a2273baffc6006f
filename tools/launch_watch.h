// What the launchers of a job's machines tell each other: that one has failed, that all are done.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "comm/deadline.h"
#include "comm/store.h"

namespace zpp {

class LaunchWatch {
 public:
  /// Connects to the job's store within the time given.
  using Connect = std::function<std::unique_ptr<Store>(Millis timeout)>;

  /// Begins to listen, on a thread of its own.
  LaunchWatch(Connect connect, int node, int nodes);
  ~LaunchWatch();

  /// What another machine's launcher has told; absent as long as none has.
  std::optional<std::string> failure() const;
  /// Best effort.
  void tell_failure(const std::string& text) noexcept;
  /// Says that this machine is done and waits for the others, or until one of them fails; returns
  /// what failed. A store that is gone was kept by a launcher that is done. Once, at the end.
  std::optional<std::string> finish(Millis timeout) noexcept;

 private:
  void listen();
  void stop_listening();
  std::optional<std::string> wait_for_all(Store& store, const Deadline& deadline);

  const Connect connect_;
  const int node_, nodes_;
  mutable std::mutex mutex_;
  std::optional<std::string> failure_;
  std::atomic<bool> connected_ = false, ended_ = false;
  std::thread thread_;
};

}  // namespace zpp
