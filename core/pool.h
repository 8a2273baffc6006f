// A stream-ordered caching allocator for one device (contract C5).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "core/stream.h"

namespace zpp {

/// Where a pool's memory comes from: the host's pages, a GPU, or nowhere. Address space is reserved
/// once per arena and gets memory from its beginning on, so an arena grows without moving and stays
/// in one piece.
class MemorySource {
 public:
  /// Commits start and end at multiples of this; at least 64.
  static constexpr size_t kGranule = size_t{2} << 20;

  virtual ~MemorySource() = default;
  /// The most that one arena can ever hold: how much address space to reserve.
  virtual size_t limit() const = 0;
  /// Address space without memory, aligned to kGranule.
  /// Errors:  kOutOfMemory.
  virtual void* reserve(size_t bytes) = 0;
  /// Puts memory behind a part of a reservation. Returns false when there is none left.
  virtual bool commit(void* data, size_t bytes) noexcept = 0;
  /// Gives back a reservation with its memory.
  virtual void release(void* data, size_t bytes) noexcept = 0;
};

/// Host memory in huge pages where the kernel grants them (a first touch of 4 KiB pages costs more
/// than the work).
std::unique_ptr<MemorySource> host_memory();
/// Addresses without memory behind them, for a dry run: never dereference. A pool on it makes the
/// same decisions as one on real memory.
std::unique_ptr<MemorySource> counted_memory();

/// Blocks return to the pool when their last owner lets go on the host, which may be before the
/// device has used them: the next allocation with the same home stream may get the block at once
/// (its tasks come later in the same queue). Use on another stream must be joined back to the home
/// stream before the owner lets go. One host thread at a time allocates; freeing is safe from any
/// thread.
class Pool {
 public:
  struct Stats {
    int64_t live_bytes = 0;    // handed out now, rounded up to the allocation unit
    int64_t peak_bytes = 0;    // highest live_bytes since reset_peak()
    int64_t cached_bytes = 0;  // free blocks kept for reuse
    int64_t held_bytes = 0;    // live + cached: taken from the source; never shrinks
    int64_t blocks = 0;        // handed out now
  };

  Pool(Device device, std::unique_ptr<MemorySource> source);
  /// Blocks that are still alive keep their memory until they are released; leak_report() tells of
  /// them before.
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  Device device() const { return device_; }
  /// Uninitialised memory, 64-byte aligned; 0 bytes give a valid unique block.
  /// Errors: kOutOfMemory, naming bytes asked, live and cached.
  std::shared_ptr<void> allocate(int64_t bytes, Stream& home);
  Stats stats() const;
  void reset_peak();
  /// Empty when nothing is alive, else one line with blocks and bytes.
  std::string leak_report() const;

 private:
  struct State;

  Device device_;
  std::shared_ptr<State> state_;
};

}  // namespace zpp
