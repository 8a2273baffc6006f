// A fixed team of threads that share one parallel loop at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "core/available_cores.h"

namespace zpp {

/// The threads that kernels of one process use. The caller of `run` works too, so a team of n
/// starts n - 1 threads. Idle threads spin for some microseconds and then sleep in the kernel, so a
/// loaded machine (several ranks on few cores) does not lose time to spinning.
///
/// Safe to call from several streams at once: a second caller, finding the team busy, runs its loop
/// alone, with the same split into parts, so that results do not depend on it.
class Workers {
 public:
  /// `threads` >= 1, the calling thread included.
  explicit Workers(int threads);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  int threads() const noexcept;
  /// How long an idle thread of this process should spin before it sleeps; zero if there are fewer
  /// cores than threads.
  std::chrono::nanoseconds spin() const noexcept;

  /// Calls fn(part) for part in [0, parts), each exactly once, on any thread, and returns when all
  /// are done. Parts are handed out dynamically, in ascending order.
  /// Errors:  all parts run; then the exception of the lowest part that threw is rethrown here.
  void run(int64_t parts, const std::function<void(int64_t part)>& fn);

  /// Splits [0, n) into contiguous ranges of at least `grain` (the last may be shorter) and calls
  /// fn(begin, end). The split depends on n, grain and threads() only.
  void parallel_for(int64_t n, int64_t grain,
                    const std::function<void(int64_t begin, int64_t end)>& fn);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace zpp
