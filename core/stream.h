// Streams and events: the one asynchronous contract, C1 to C8, that CPU and CUDA implement alike.
//
// C1 enqueue returns at once, tasks run first in, first out. C2 an event completes when all tasks
// before it have run; a default event is complete. C3 wait() orders streams and never blocks the
// host. C4 the first error of a stream wins and sticks: later tasks are dropped, events still
// complete and carry the error, streams that wait for them inherit it, synchronize() rethrows it
// with stream and task name. C5 memory is stream-ordered (see pool.h). C6 destruction drains. C7 a
// task never waits for work that it would have to enqueue on its own stream. C8 on CUDA record and
// wait are cudaEventRecord and cudaStreamWaitEvent.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

#include "core/types.h"

namespace zpp {

using Millis = std::chrono::milliseconds;

/// Copyable handle to one point of one stream.
class Event {
 public:
  /// What a backend shares between an event and the stream that completes it.
  class State {
   public:
    virtual ~State() = default;
    virtual bool ready() const = 0;
    /// Returns false if `timeout` passed first. Rethrows the stream's error when complete.
    virtual bool wait(Millis timeout) const = 0;
  };

  Event() = default;  // already complete
  explicit Event(std::shared_ptr<const State> state) : state_(std::move(state)) {}

  bool ready() const { return !state_ || state_->ready(); }
  /// Blocks the host.
  /// Errors: the stream's first error; kTimeout after `timeout`.
  void synchronize(Millis timeout = Millis::max()) const;
  const std::shared_ptr<const State>& state() const { return state_; }

 private:
  std::shared_ptr<const State> state_;
};

using Events = std::initializer_list<Event>;

/// What a task cannot do without, as the kernel that enqueues it counts: a lower bound, whatever
/// the caches do.
struct Work {
  double bytes = 0;                 // read and written, each array once
  double flops = 0;                 // of products; the rest of a kernel's arithmetic is not counted
  std::array<int64_t, 3> shape{0};  // M, N and K of a matrix product
};

/// A task that has run.
struct TaskRecord {
  std::string_view name;  // lives as long as the call; a wait for an event is "wait"
  const Work& work;
  std::chrono::steady_clock::time_point begin, end;
};

/// What profiles and traces are made from.
class TaskObserver {
 public:
  virtual ~TaskObserver() = default;
  /// Called on a thread of the stream after each of its tasks, in order, and before any event that
  /// is recorded after the task completes. Must be quick and must not throw.
  virtual void task_ran(const TaskRecord& task) noexcept = 0;
};

class Stream {
 public:
  virtual ~Stream() = default;  // drains

  virtual Device device() const = 0;
  virtual const std::string& name() const = 0;
  /// Completes when everything enqueued so far has run.
  virtual Event record() = 0;
  /// Later work here runs after `event`; never blocks the host.
  virtual void wait(const Event& event) = 0;
  /// Runs `fn` in order on a host thread.
  virtual void host(std::string_view name, std::function<void()> fn) = 0;
  /// Tasks that are enqueued from now on are reported to `observer`, or to nobody if it is null.
  /// `observer` must live until the stream has gone past a later call, or is gone itself. Tasks
  /// that an error has made the stream drop are not reported.
  virtual void observe(TaskObserver* observer) = 0;
  /// Blocks the host until all work is done; rethrows the first error.
  void synchronize() { record().synchronize(); }
};

}  // namespace zpp
