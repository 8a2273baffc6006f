// One arena per home stream: a single growing range of addresses, cut into blocks that know their
// neighbours. A freed block merges with free neighbours; an allocation takes the smallest free
// block that fits and splits it; when none fits, the arena grows by what is missing behind its last
// block. Decisions depend on offsets and sizes only, so a dry run predicts them.
#include "core/pool.h"

#include <fmt/format.h>

#include <map>
#include <mutex>
#include <set>
#include <utility>

namespace zpp {

namespace {

constexpr int64_t kUnit = 64;

int64_t round_up(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

class Arena {
 public:
  explicit Arena(MemorySource& source)
      : source_(source),
        reserved_(source.limit()),
        base_(static_cast<char*>(source.reserve(reserved_))) {}
  ~Arena() { source_.release(base_, reserved_); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  char* address(int64_t offset) const { return base_ + offset; }
  int64_t held() const { return held_; }

  /// `bytes` is a multiple of kUnit. Returns an offset, or -1 if the source is exhausted.
  int64_t allocate(int64_t bytes) {
    auto fit = free_.lower_bound({bytes, 0});
    if (fit == free_.end()) {
      if (!grow(bytes)) return -1;
      fit = free_.lower_bound({bytes, 0});
    }
    const auto [size, offset] = *fit;
    free_.erase(fit);
    blocks_[offset] = {bytes, false};
    if (size > bytes) insert_free(offset + bytes, size - bytes);
    return offset;
  }

  /// Returns the size of the block that was at `offset`.
  int64_t release(int64_t offset) {
    auto at = blocks_.find(offset);
    const int64_t bytes = at->second.bytes;
    int64_t begin = offset;
    int64_t end = offset + bytes;
    if (const auto next = std::next(at); next != blocks_.end() && next->second.free) {
      end += next->second.bytes;
      take_free(next);
    }
    if (at != blocks_.begin() && std::prev(at)->second.free) {
      begin = std::prev(at)->first;
      take_free(std::prev(at));
    }
    blocks_.erase(at);
    insert_free(begin, end - begin);
    return bytes;
  }

 private:
  struct Block {
    int64_t bytes;
    bool free;
  };
  using Blocks = std::map<int64_t, Block>;

  void insert_free(int64_t offset, int64_t bytes) {
    blocks_[offset] = {bytes, true};
    free_.insert({bytes, offset});
  }

  void take_free(Blocks::iterator block) {
    free_.erase({block->second.bytes, block->first});
    blocks_.erase(block);
  }

  /// Extends the arena until its last block is free and has `bytes`.
  bool grow(int64_t bytes) {
    const auto last = blocks_.empty() ? blocks_.end() : std::prev(blocks_.end());
    const bool extend = last != blocks_.end() && last->second.free;
    const int64_t begin = extend ? last->first : held_;
    const int64_t more =
        round_up(bytes - (held_ - begin), static_cast<int64_t>(MemorySource::kGranule));
    if (more > static_cast<int64_t>(reserved_) - held_ ||
        !source_.commit(address(held_), static_cast<size_t>(more))) {
      return false;
    }
    if (extend) take_free(last);
    held_ += more;
    insert_free(begin, held_ - begin);
    return true;
  }

  MemorySource& source_;
  const size_t reserved_;
  char* const base_;
  int64_t held_ = 0;
  Blocks blocks_;                               // by offset, without gaps
  std::set<std::pair<int64_t, int64_t>> free_;  // (bytes, offset)
};

}  // namespace

struct Pool::State {
  explicit State(std::unique_ptr<MemorySource> s) : source(std::move(s)) {}

  Arena& arena_of(const Stream& home) {
    auto& arena = arenas[&home];
    if (!arena) arena = std::make_unique<Arena>(*source);
    return *arena;
  }

  int64_t held() const {
    int64_t total = 0;
    for (const auto& [stream, arena] : arenas) total += arena->held();
    return total;
  }

  void release(Arena& arena, int64_t offset) {
    const std::lock_guard lock(mutex);
    live -= arena.release(offset);
    --blocks;
  }

  const std::unique_ptr<MemorySource> source;
  mutable std::mutex mutex;
  // A stream that is gone has drained, so another one at its address may take over its arena.
  std::map<const Stream*, std::unique_ptr<Arena>> arenas;
  int64_t live = 0;
  int64_t peak = 0;
  int64_t blocks = 0;
};

Pool::Pool(Device device, std::unique_ptr<MemorySource> source)
    : device_(device), state_(std::make_shared<State>(std::move(source))) {}

Pool::~Pool() = default;

std::shared_ptr<void> Pool::allocate(int64_t bytes, Stream& home) {
  constexpr int64_t kMost = int64_t{1} << 60;
  if (bytes < 0 || bytes > kMost) {
    throw Error(Code::kInvalidArgument,
                fmt::format("pool on {}: {} bytes asked for", to_string(device_), bytes));
  }
  const int64_t rounded = round_up(std::max<int64_t>(bytes, 1), kUnit);
  std::unique_lock lock(state_->mutex);
  Arena& arena = state_->arena_of(home);
  const int64_t offset = arena.allocate(rounded);
  if (offset < 0) {
    throw Error(Code::kOutOfMemory,
                fmt::format("pool on {}: {} bytes asked for by stream {}, while {} are live and {} "
                            "cached; use a smaller micro-batch or recompute activations",
                            to_string(device_), bytes, home.name(), state_->live,
                            state_->held() - state_->live));
  }
  state_->live += rounded;
  state_->peak = std::max(state_->peak, state_->live);
  ++state_->blocks;
  // If the owner itself cannot be made, its deleter takes the mutex.
  lock.unlock();
  return std::shared_ptr<void>(arena.address(offset), [state = state_, &arena, offset](void*) {
    state->release(arena, offset);
  });
}

Pool::Stats Pool::stats() const {
  const std::lock_guard lock(state_->mutex);
  Stats stats;
  stats.live_bytes = state_->live;
  stats.peak_bytes = state_->peak;
  stats.held_bytes = state_->held();
  stats.cached_bytes = stats.held_bytes - stats.live_bytes;
  stats.blocks = state_->blocks;
  return stats;
}

void Pool::reset_peak() {
  const std::lock_guard lock(state_->mutex);
  state_->peak = state_->live;
}

std::string Pool::leak_report() const {
  const std::lock_guard lock(state_->mutex);
  if (state_->blocks == 0) return {};
  return fmt::format("pool on {}: {} {} with {} bytes still alive", to_string(device_),
                     state_->blocks, state_->blocks == 1 ? "block" : "blocks", state_->live);
}

}  // namespace zpp
