// The last operations of a rank, for the post-mortem of a job that hung.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>

#include "comm/transport.h"

namespace zpp {

/// Thread-safe.
class FlightRecord {
 public:
  struct Entry {
    std::string group;
    Operation operation;
    uint32_t sequence;
    int64_t bytes;
    double begin_s, end_s;  // since the record began; end_s < 0 while it runs
    std::string error;      // empty unless it failed
  };

  explicit FlightRecord(size_t keep = 64) : keep_(keep) {}

  /// Returns a handle for end().
  uint64_t begin(const std::string& group, Operation operation, uint32_t sequence, int64_t bytes);
  void end(uint64_t handle, const std::string& error = {});
  /// Human-readable JSON lines, oldest first.
  std::string text() const;

 private:
  double now() const;

  const size_t keep_;
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  mutable std::mutex mutex_;
  uint64_t next_ = 0;
  std::deque<Entry> operations_;
};

}  // namespace zpp
