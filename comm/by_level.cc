#include "comm/by_level.h"

#include <array>
#include <cstring>

#include "comm/pipeline.h"

namespace zpp {
namespace {

// Large enough for a transport to reach its bandwidth, small enough that what arrives is still in
// the second-level cache when it is added.
constexpr int64_t kChunkBytes = int64_t{512} << 10;
// Of receive buffers, which grow with the number of ranks.
constexpr int64_t kScratchBytes = int64_t{32} << 20;
constexpr int64_t kSmallestChunk = int64_t{16} << 10;
constexpr int64_t kSendsAhead = 4;  // chunks

std::span<std::byte> bytes_at(std::byte* base, int64_t element, int64_t count, int64_t width) {
  return {base + element * width, static_cast<size_t>(count * width)};
}

class AllGather {
 public:
  AllGather(Exchange& exchange, const Levels& levels, const Blocks& blocks, const std::byte* own,
            std::byte* out)
      : exchange_(exchange),
        levels_(levels),
        blocks_(blocks),
        chunks_(blocks, levels.count() > 1 ? kChunkBytes : blocks.per * blocks.width),
        own_(own),
        out_(out),
        receives_(static_cast<size_t>(levels.count())) {}

  void run() {
    bool copied = false;
    pipeline(
        chunks_.count(), levels_.count(), [&](int stage, int64_t chunk) { post(stage, chunk); },
        [&](int stage, int64_t chunk) {
          if (!copied) copy_own();
          copied = true;
          exchange_.wait(tickets(stage, chunk));
        });
    exchange_.wait(sends_);
  }

 private:
  void copy_own() {
    const std::byte* place = out_ + blocks_.begin(levels_.me()) * blocks_.width;
    const int64_t length = blocks_.length(levels_.me());
    if (place == own_ || length == 0) return;
    std::memcpy(out_ + blocks_.begin(levels_.me()) * blocks_.width, own_,
                static_cast<size_t>(length * blocks_.width));
  }

  Exchange::Tickets& tickets(int stage, int64_t chunk) {
    return receives_[static_cast<size_t>(stage)][static_cast<size_t>(chunk % 2)];
  }

  /// The part of a block that lies in a chunk.
  std::span<std::byte> part(int block, const Chunk& chunk) const {
    return bytes_at(out_, blocks_.begin(block) + chunk.begin, chunk.of(blocks_.length(block)),
                    blocks_.width);
  }
  std::span<const std::byte> source(int block, const Chunk& chunk) const {
    const std::span<std::byte> place = part(block, chunk);
    if (block != levels_.me()) return place;
    return {own_ + chunk.begin * blocks_.width, place.size()};
  }

  void post(int stage, int64_t c) {
    const int j = levels_.count() - 1 - stage;  // outermost first
    const Chunk chunk = chunks_[c];
    const int64_t step = c * levels_.count() + stage;
    for (int shift = 1; shift < levels_.ways(j); ++shift) {
      const int peer = levels_.peer(j, (levels_.place(j) + shift) % levels_.ways(j));
      for (int r = 0; r < levels_.pieces(j); ++r) {
        const auto from = source(r * levels_.outer(j) + levels_.me() % levels_.outer(j), chunk);
        if (!from.empty()) sends_.push_back(exchange_.send(peer, step, from));
      }
    }
    for (int a = 0; a < levels_.ways(j); ++a) {
      const int peer = levels_.peer(j, a);
      if (peer == levels_.me()) continue;
      for (int r = 0; r < levels_.pieces(j); ++r) {
        const auto to = part(r * levels_.outer(j) + peer % levels_.outer(j), chunk);
        if (!to.empty()) tickets(stage, c).push_back(exchange_.receive(peer, step, to));
      }
    }
  }

  Exchange& exchange_;
  const Levels& levels_;
  const Blocks& blocks_;
  const Chunks chunks_;
  const std::byte* own_;
  std::byte* out_;
  std::vector<std::array<Exchange::Tickets, 2>> receives_;  // by stage, then chunk % 2
  Exchange::Tickets sends_;
};

class ReduceScatter {
 public:
  ReduceScatter(Exchange& exchange, const Levels& levels, const Blocks& blocks,
                const Reduction& reduction, const std::byte* in, std::byte* out)
      : exchange_(exchange),
        levels_(levels),
        blocks_(blocks),
        reduction_(reduction),
        chunks_(blocks, chunk_bytes(levels)),
        in_(in),
        out_(out),
        stages_(static_cast<size_t>(levels.count())) {
    const int64_t slot = chunks_.length() * blocks_.width;
    std::byte* next = exchange_.scratch(2 * slots(levels) * slot);
    for (int j = 0; j < levels_.count(); ++j) {
      for (Slot& s : stages_[static_cast<size_t>(j)]) {
        s.received = next;
        next += (levels_.ways(j) - 1) * levels_.pieces(j) * slot;
        s.sums = next;
        next += levels_.pieces(j) * slot;
      }
    }
  }

  void run() {
    pipeline(
        chunks_.count(), levels_.count(), [&](int j, int64_t chunk) { post(j, chunk); },
        [&](int j, int64_t chunk) { finish(j, chunk); });
    exchange_.wait(input_sends_);
  }

 private:
  /// A chunk at a level: what came from the peers and, for the next level, the sums.
  struct Slot {
    std::byte* received = nullptr;
    std::byte* sums = nullptr;
    Exchange::Tickets receives, sends;
  };

  /// Chunks of scratch that one chunk needs at all levels.
  static int64_t slots(const Levels& levels) {
    int64_t count = 0;
    for (int j = 0; j < levels.count(); ++j) count += levels.ways(j) * levels.pieces(j);
    return count;
  }
  static int64_t chunk_bytes(const Levels& levels) {
    return std::clamp(kScratchBytes / (2 * slots(levels)), kSmallestChunk, kChunkBytes);
  }

  int64_t step(int j, int64_t chunk) const { return chunk * levels_.count() + j; }
  Slot& slot(int j, int64_t chunk) {
    return stages_[static_cast<size_t>(j)][static_cast<size_t>(chunk % 2)];
  }
  int block(int j, int piece, int place) const {
    return piece * levels_.outer(j) + place * levels_.inner(j) + levels_.me() % levels_.inner(j);
  }
  int64_t length(int j, int piece, int place, int64_t c) const {
    return chunks_[c].of(blocks_.length(block(j, piece, place)));
  }
  /// What this rank has of the sum for a peer: input at the innermost level, else the sums of the
  /// level below.
  const std::byte* source(int j, int piece, int place, int64_t c) {
    if (j == 0) {
      const int64_t element = blocks_.begin(block(j, piece, place)) + chunks_[c].begin;
      return in_ + element * blocks_.width;
    }
    const int64_t below = piece * levels_.ways(j) + place;
    return slot(j - 1, c).sums + below * chunks_.length() * blocks_.width;
  }
  std::byte* received(int j, int piece, int place, int64_t c) {
    const int64_t other = place - (place > levels_.place(j) ? 1 : 0);
    const int64_t index = other * levels_.pieces(j) + piece;
    return slot(j, c).received + index * chunks_.length() * blocks_.width;
  }

  void post(int j, int64_t c) {
    if (j > 0) send(j, c, slot(j, c).sends);
    // Input is there from the start: a peer that is late must not find nothing to take.
    for (; j == 0 && sent_ <= std::min(c + kSendsAhead, chunks_.count() - 1); ++sent_) {
      send(0, sent_, input_sends_);
    }
    const int mine = levels_.place(j);
    for (int a = 0; a < levels_.ways(j); ++a) {
      if (a == mine) continue;
      for (int r = 0; r < levels_.pieces(j); ++r) {
        const int64_t n = length(j, r, mine, c);
        if (n == 0) continue;
        slot(j, c).receives.push_back(exchange_.receive(
            levels_.peer(j, a), step(j, c), bytes_at(received(j, r, a, c), 0, n, blocks_.width)));
      }
    }
  }

  void send(int j, int64_t c, Exchange::Tickets& tickets) {
    for (int shift = 1; shift < levels_.ways(j); ++shift) {
      const int a = (levels_.place(j) + shift) % levels_.ways(j);
      for (int r = 0; r < levels_.pieces(j); ++r) {
        const int64_t n = length(j, r, a, c);
        if (n == 0) continue;
        tickets.push_back(
            exchange_.send(levels_.peer(j, a), step(j, c),
                           {source(j, r, a, c), static_cast<size_t>(n * blocks_.width)}));
      }
    }
  }

  void finish(int j, int64_t c) {
    exchange_.wait(slot(j, c).receives);
    const bool last = j == levels_.count() - 1;
    std::vector<const void*> sources(static_cast<size_t>(levels_.ways(j)));
    for (int r = 0; r < levels_.pieces(j); ++r) {
      for (int a = 0; a < levels_.ways(j); ++a) {
        sources[static_cast<size_t>(a)] =
            a == levels_.place(j) ? source(j, r, a, c) : received(j, r, a, c);
      }
      std::byte* sum = last ? out_ + chunks_[c].begin * size_of(reduction_.out_dtype)
                            : slot(j, c).sums + r * chunks_.length() * blocks_.width;
      kernels::host_reduce(exchange_.isa(),
                           {.reduction = reduction_.kind,
                            .sources = sources.data(),
                            .count = levels_.ways(j),
                            .dtype = reduction_.dtype,
                            .out = sum,
                            .out_dtype = last ? reduction_.out_dtype : reduction_.dtype,
                            .n = length(j, r, levels_.place(j), c),
                            .scale = last ? reduction_.scale : 1});
    }
    // What this chunk sent lies in the sums of the level below, which chunk c + 2 overwrites; the
    // innermost level sends input, which stays.
    exchange_.wait(slot(j, c).sends);
  }

  Exchange& exchange_;
  const Levels& levels_;
  const Blocks& blocks_;
  const Reduction& reduction_;
  const Chunks chunks_;
  const std::byte* in_;
  std::byte* out_;
  std::vector<std::array<Slot, 2>> stages_;
  int64_t sent_ = 0;  // chunks of input
  Exchange::Tickets input_sends_;
};

}  // namespace

void all_gather_by_level(Exchange& exchange, const Levels& levels, const Blocks& blocks,
                         const std::byte* own, std::byte* out) {
  AllGather(exchange, levels, blocks, own, out).run();
}

void reduce_scatter_by_level(Exchange& exchange, const Levels& levels, const Blocks& blocks,
                             const Reduction& reduction, const std::byte* in, std::byte* out) {
  ReduceScatter(exchange, levels, blocks, reduction, in, out).run();
}

void all_to_all_by_level(Exchange& exchange, const Levels& levels, const Blocks& blocks,
                         const std::byte* in, std::byte* out) {
  const int64_t block_bytes = blocks.per * blocks.width;
  const int64_t total = block_bytes * levels.size();
  // Before level j: [group of outer(j) that it comes from][member of ours that it goes to].
  const std::byte* from = in;
  std::byte* spare = levels.count() > 1 ? exchange.scratch(2 * total) : nullptr;
  for (int j = levels.count() - 1; j >= 0; --j) {
    std::byte* to = j == 0 ? out : spare + (j % 2) * total;
    const int64_t bundle = levels.inner(j) * block_bytes;
    const auto at = [&](int piece, int a) { return (piece * levels.ways(j) + a) * bundle; };
    const auto length = static_cast<size_t>(bundle);
    Exchange::Tickets sends, receives;
    for (int shift = 1; shift < levels.ways(j) && bundle > 0; ++shift) {
      const int a = (levels.place(j) + shift) % levels.ways(j);
      for (int r = 0; r < levels.pieces(j); ++r) {
        sends.push_back(exchange.send(levels.peer(j, a), j, {from + at(r, a), length}));
      }
    }
    for (int shift = 1; shift < levels.ways(j) && bundle > 0; ++shift) {
      const int a = (levels.place(j) + shift) % levels.ways(j);
      for (int r = 0; r < levels.pieces(j); ++r) {
        receives.push_back(exchange.receive(levels.peer(j, a), j, {to + at(r, a), length}));
      }
    }
    for (int r = 0; r < levels.pieces(j) && bundle > 0; ++r) {
      std::memcpy(to + at(r, levels.place(j)), from + at(r, levels.place(j)), length);
    }
    exchange.wait(receives);
    exchange.wait(sends);
    from = to;
  }
}

}  // namespace zpp
