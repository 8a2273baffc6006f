#include "comm/coded_reduce.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "comm/pipeline.h"
#include "core/rng.h"

namespace zpp {
namespace {

// Of all packets on their way: pieces are smaller where there would be more.
constexpr int64_t kScratchBytes = int64_t{32} << 20;

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

class CodedReduceScatter {
 public:
  CodedReduceScatter(Exchange& exchange, const Levels& levels, std::vector<WireFormat> formats,
                     const CodedReduction& how, int rank, std::pair<const float*, float*> in_out,
                     int64_t n)
      : exchange_(exchange),
        levels_(levels),
        formats_(std::move(formats)),
        how_(how),
        in_(in_out.first),
        out_(in_out.second),
        n_(n),
        chunk_(std::max(how.grid, round_up((n + how.chunks - 1) / how.chunks, how.grid))),
        stages_(static_cast<size_t>(levels.count())) {
    for (int j = 0; j < levels_.count(); ++j) {
      keys_.push_back(how.rounding == nullptr ? RngKey{}
                                              : RngKey{how.rounding->seed,
                                                       mix_hash(how.rounding->name_hash,
                                                                static_cast<uint64_t>(rank) * 16 +
                                                                    static_cast<uint64_t>(j)),
                                                       how.rounding->offset});
    }
    place_memory();
  }

  void run() {
    const int64_t chunks = n_ == 0 ? 0 : (n_ + chunk_ - 1) / chunk_;
    pipeline(
        chunks, levels_.count(),
        [&](int j, int64_t c) {
          if (j == 0) encode(c);
          post(j, c);
        },
        [&](int j, int64_t c) { finish(j, c); });
  }

 private:
  /// Packets of one chunk at one level, at `stride`: for piece r and peer a, what goes there and what
  /// came from there.
  struct Slot {
    std::byte* out = nullptr;
    std::byte* in = nullptr;
    Exchange::Tickets receives, sends;
  };

  void place_memory() {
    int64_t packets = 0;
    for (int j = 0; j < levels_.count(); ++j) packets += levels_.ways(j) * levels_.pieces(j);
    stride_ = largest();
    while (4 * packets * stride_ > kScratchBytes && chunk_ > how_.grid) {
      chunk_ = std::max(how_.grid, chunk_ / 2 / how_.grid * how_.grid);
      stride_ = largest();
    }
    std::byte* next = exchange_.scratch(4 * packets * stride_ + chunk_ * 4);
    for (int j = 0; j < levels_.count(); ++j) {
      const int64_t bytes = levels_.ways(j) * levels_.pieces(j) * stride_;
      for (Slot& slot : stages_[static_cast<size_t>(j)]) {
        slot.out = std::exchange(next, next + bytes);
        slot.in = std::exchange(next, next + bytes);
      }
    }
    sums_ = reinterpret_cast<float*>(next);
  }
  /// Bytes of any packet of a chunk: all of it uncoded in the worst case; segments are apart, so each
  /// adds at most one padding and one broken block.
  int64_t largest() const {
    int64_t most = chunk_ * size_of(how_.as_is);
    for (const WireFormat& format : formats_) {
      if (!format.coded()) continue;
      const kernels::QuantFormat quant = format.quant();
      most = std::max(most, quant.code_bytes(chunk_) + 4 * quant.scales(chunk_));
    }
    return round_up(most + 8 * static_cast<int64_t>(how_.segments->size()), 64);
  }

  Slot& slot(int j, int64_t chunk) {
    return stages_[static_cast<size_t>(j)][static_cast<size_t>(chunk % 2)];
  }
  int64_t index(int j, int piece, int place) const {
    return (piece * levels_.ways(j) + place) * stride_;
  }
  /// The part of the buffer that member `place` of level j is to have the sum of.
  int block(int j, int piece, int place) const {
    return piece * levels_.outer(j) + place * levels_.inner(j) + levels_.me() % levels_.inner(j);
  }
  int64_t begin_of(int block, int64_t c) const { return block * n_ + c * chunk_; }
  int64_t length(int64_t c) const { return std::min(chunk_, n_ - c * chunk_); }
  Packet packet(int j, int block, int64_t c) const {
    const int64_t begin = how_.first + begin_of(block, c);
    return Packet(*how_.segments, begin, begin + length(c), formats_[static_cast<size_t>(j)],
                  how_.as_is);
  }
  Packet::Encode encoding(int j, const float* from) const {
    return {.isa = exchange_.isa(),
            .from = from,
            .dtype = DType::kF32,
            .hadamard = how_.hadamard,
            .rounding = how_.rounding == nullptr ? nullptr : &keys_[static_cast<size_t>(j)]};
  }

  void encode(int64_t c) {
    for (int r = 0; r < levels_.pieces(0); ++r) {
      for (int a = 0; a < levels_.ways(0); ++a) {
        const int to = block(0, r, a);
        std::byte* const place = a == levels_.place(0) ? slot(0, c).in : slot(0, c).out;
        packet(0, to, c).encode(encoding(0, in_ + begin_of(to, c)), place + index(0, r, a));
      }
    }
  }

  void post(int j, int64_t c) {
    const int64_t step = c * levels_.count() + j;
    const int mine = levels_.place(j);
    Slot& s = slot(j, c);
    for (int shift = 1; shift < levels_.ways(j); ++shift) {
      const int a = (mine + shift) % levels_.ways(j);
      for (int r = 0; r < levels_.pieces(j); ++r) {
        const auto bytes = static_cast<size_t>(packet(j, block(j, r, a), c).bytes());
        if (bytes == 0) continue;
        s.sends.push_back(
            exchange_.send(levels_.peer(j, a), step, {s.out + index(j, r, a), bytes}));
      }
    }
    for (int r = 0; r < levels_.pieces(j); ++r) {
      const auto bytes = static_cast<size_t>(packet(j, block(j, r, mine), c).bytes());
      if (bytes == 0) continue;
      for (int a = 0; a < levels_.ways(j); ++a) {
        if (a == mine) continue;
        s.receives.push_back(
            exchange_.receive(levels_.peer(j, a), step, {s.in + index(j, r, a), bytes}));
      }
    }
  }

  void finish(int j, int64_t c) {
    Slot& s = slot(j, c);
    exchange_.wait(s.receives);
    const bool last = j == levels_.count() - 1;
    std::vector<const std::byte*> packets(static_cast<size_t>(levels_.ways(j)));
    for (int r = 0; r < levels_.pieces(j); ++r) {
      for (int a = 0; a < levels_.ways(j); ++a) {
        packets[static_cast<size_t>(a)] = s.in + index(j, r, a);
      }
      const int mine = block(j, r, levels_.place(j));
      const Packet from = packet(j, mine, c);
      if (last) {
        from.decode(packets, {.isa = exchange_.isa(),
                              .hadamard = how_.hadamard,
                              .scale = how_.scale,
                              .out = out_ + c * chunk_});
      } else {
        pass_on(j + 1, mine, c, from, packets);
      }
    }
    // What this chunk sent is overwritten by chunk c + 2.
    exchange_.wait(s.sends);
  }

  /// The sum of a block goes to its place in the next level's messages.
  void pass_on(int j, int block, int64_t c, const Packet& from,
               const std::vector<const std::byte*>& packets) {
    const int piece = block / levels_.outer(j);
    const int place = block % levels_.outer(j) / levels_.inner(j);
    Slot& next = slot(j, c);
    std::byte* const to = (place == levels_.place(j) ? next.in : next.out) + index(j, piece, place);
    from.recode(packets, packet(j, block, c), encoding(j, nullptr), sums_, to);
  }

  Exchange& exchange_;
  const Levels& levels_;
  const std::vector<WireFormat> formats_;  // by level
  const CodedReduction& how_;
  const float* in_;
  float* out_;
  const int64_t n_;
  int64_t chunk_;
  int64_t stride_ = 0;
  std::vector<std::array<Slot, 2>> stages_;
  std::vector<RngKey> keys_;
  float* sums_ = nullptr;
};

}  // namespace

void coded_reduce_scatter(Exchange& exchange, const Levels& levels, const Topology& topology,
                          const std::vector<int>& members, const CodedReduction& how,
                          const float* in, float* out, int64_t n) {
  const int rank = members[static_cast<size_t>(levels.me())];
  std::vector<WireFormat> formats;
  for (int j = 0; j < levels.count(); ++j) {
    bool inside = true;
    for (int a = 0; a < levels.ways(j); ++a) {
      inside &= topology.link(rank, members[static_cast<size_t>(levels.peer(j, a))]) <= 1;
    }
    formats.push_back(inside ? how.intra : how.inter);
  }
  CodedReduceScatter(exchange, levels, std::move(formats), how, rank, {in, out}, n).run();
}

}  // namespace zpp
