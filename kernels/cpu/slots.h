// A parallel loop whose bodies need scratch memory of their own.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <new>

#include "core/workers.h"

namespace zpp::kernels::cpu {

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Calls fn(item, slot) for every item in [0, items), in ascending order as far as threads allow.
/// No two calls that run at the same time have the same slot, and slots are below min(items,
/// workers.threads()), so a buffer per slot is enough.
template <class Fn>
void run_in_slots(Workers& workers, int64_t items, const Fn& fn) {
  std::atomic<int64_t> next{0};
  workers.run(std::min<int64_t>(items, workers.threads()), [&](int64_t slot) {
    for (int64_t item; (item = next.fetch_add(1, std::memory_order_relaxed)) < items;) {
      fn(item, slot);
    }
  });
}

/// Uninitialised memory, aligned for vectors, that a stream keeps for its kernels. Grows, never
/// shrinks.
class ScratchMemory {
 public:
  /// At least `bytes`; what was there is lost when it grows.
  std::byte* at_least(int64_t bytes) {
    if (bytes > bytes_) {
      data_.reset();
      bytes_ = 0;
      data_.reset(static_cast<std::byte*>(::operator new(static_cast<size_t>(bytes), kAlignment)));
      bytes_ = bytes;
    }
    return data_.get();
  }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(std::byte* data) const { ::operator delete(data, kAlignment); }
  };

  std::unique_ptr<std::byte, Free> data_;
  int64_t bytes_ = 0;
};

}  // namespace zpp::kernels::cpu
