// Every byte that leaves a rank, counted by collective, group and link class.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "comm/topology.h"
#include "comm/transport.h"

namespace zpp {

/// Thread-safe: several communicators of a rank share one.
class Ledger {
 public:
  struct Entry {
    int64_t calls = 0;
    double seconds = 0;               // on the communication stream, waiting for peers included
    std::vector<int64_t> sent_bytes;  // payload, by LinkClass
  };
  /// Key: group ("world", "node", ...) and operation, e.g. {"weights/world", kAllGather}.
  using Key = std::pair<std::string, Operation>;

  explicit Ledger(int levels) : levels_(levels) {}

  void add(const std::string& group, Operation operation, double seconds,
           const std::vector<int64_t>& sent_bytes);
  std::map<Key, Entry> entries() const;
  /// Over all entries, by LinkClass.
  std::vector<int64_t> sent_bytes() const;
  double seconds() const;
  void reset();

 private:
  const int levels_;
  mutable std::mutex mutex_;
  std::map<Key, Entry> entries_;
};

}  // namespace zpp
