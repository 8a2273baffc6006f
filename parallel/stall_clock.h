// How long a stream stands still because what it waits for is not there yet.
#pragma once

#include <atomic>
#include <memory>

#include "core/stream.h"

namespace zpp {

class StallClock {
 public:
  explicit StallClock(Stream& stream) : stream_(stream) {}

  /// Later work of the stream runs after `event`; the time that it waits is counted.
  void wait(const Event& event);
  /// Seconds so far, of waits that have ended.
  double seconds() const { return times_->total_s.load(); }

 private:
  struct Times {
    double begin_s = 0;
    std::atomic<double> total_s{0};
  };
  Stream& stream_;
  const std::shared_ptr<Times> times_ = std::make_shared<Times>();  // written by the stream's tasks
};

}  // namespace zpp
