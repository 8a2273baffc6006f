// Deadlines from timeouts that may be "for ever".
#pragma once

#include <algorithm>
#include <chrono>
#include <climits>

#include "core/stream.h"

namespace zpp {

/// A moment from which on a wait has taken too long. Any timeout is fine, Millis::max() included.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Deadline(Millis timeout) {
    const Clock::time_point now = Clock::now();
    const auto longest = std::chrono::duration_cast<Millis>(Clock::time_point::max() - now);
    at_ = timeout >= longest ? Clock::time_point::max() : now + timeout;
  }

  Clock::time_point at() const { return at_; }
  bool passed() const { return Clock::now() >= at_; }
  /// What is left, never negative, and at most `limit`. Rounded up: waiting for it is enough.
  Millis left(Millis limit = Millis(INT_MAX)) const {
    const Clock::duration rest = at_ - Clock::now();
    if (rest >= limit) return limit;
    return std::max(Millis(0), std::chrono::ceil<Millis>(rest));
  }

 private:
  Clock::time_point at_;
};

}  // namespace zpp
