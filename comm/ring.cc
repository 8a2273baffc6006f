#include "comm/ring.h"

#include <array>
#include <cstring>

namespace zpp {
namespace {

constexpr int64_t kChunkBytes = int64_t{256} << 10;
constexpr int64_t kWindow = 4;  // chunks that a rank is ready to receive

/// The chunks that a rank receives in P - 1 steps, in order.
class Ring {
 public:
  Ring(Exchange& exchange, const Blocks& blocks)
      : exchange_(exchange), blocks_(blocks), chunks_(blocks, kChunkBytes) {}

  int64_t count() const { return (size() - 1) * chunks_.count(); }
  int64_t chunk_bytes() const { return chunks_.length() * blocks_.width; }
  bool last_step(int64_t u) const { return u / chunks_.count() == size() - 2; }

  struct Part {
    int64_t begin, length;  // elements
  };
  /// Chunk number u of the member `away` places to the left of the one that step 0 is about.
  Part part(int64_t u, int away) const {
    const int64_t step = u / chunks_.count();
    const auto block = static_cast<int>((exchange_.me() - step - away + 2 * size()) % size());
    const Chunk chunk = chunks_[u % chunks_.count()];
    return {blocks_.begin(block) + chunk.begin, chunk.of(blocks_.length(block))};
  }

  void send(int64_t u, const std::byte* from, const Part& part) {
    if (part.length == 0) return;
    const auto length = static_cast<size_t>(part.length * blocks_.width);
    sends_.push_back(exchange_.send((exchange_.me() + 1) % size(), u,
                                    {from + part.begin * blocks_.width, length}));
  }
  /// Posts the receive of chunk u, where there is one.
  void receive(int64_t u, std::byte* to, const Part& part) {
    if (part.length == 0) return;
    const auto length = static_cast<size_t>(part.length * blocks_.width);
    ticket(u) = exchange_.receive((exchange_.me() + size() - 1) % size(), u, {to, length});
    posted(u) = true;
  }
  void wait(int64_t u) {
    if (posted(u)) exchange_.wait(ticket(u));
    posted(u) = false;
  }
  void finish() { exchange_.wait(sends_); }

 private:
  int size() const { return exchange_.size(); }
  Exchange::Ticket& ticket(int64_t u) { return tickets_[static_cast<size_t>(u % kWindow)]; }
  bool& posted(int64_t u) { return posted_[static_cast<size_t>(u % kWindow)]; }

  Exchange& exchange_;
  const Blocks& blocks_;
  const Chunks chunks_;
  std::array<Exchange::Ticket, kWindow> tickets_{};
  std::array<bool, kWindow> posted_{};
  Exchange::Tickets sends_;
};

}  // namespace

void ring_all_gather(Exchange& exchange, const Blocks& blocks, const std::byte* own,
                     std::byte* out) {
  Ring ring(exchange, blocks);
  const int64_t count = ring.count();
  const int64_t per_step = exchange.size() > 1 ? count / (exchange.size() - 1) : 0;
  const auto receive = [&](int64_t u) {
    const Ring::Part part = ring.part(u, 1);
    ring.receive(u, out + part.begin * blocks.width, part);
  };
  std::byte* place = out + blocks.begin(exchange.me()) * blocks.width;
  const int64_t length = blocks.length(exchange.me()) * blocks.width;
  if (place != own && length > 0) std::memcpy(place, own, static_cast<size_t>(length));
  for (int64_t u = 0; u < per_step; ++u) ring.send(u, out, ring.part(u, 0));
  for (int64_t u = 0; u < std::min(kWindow, count); ++u) receive(u);
  for (int64_t u = 0; u < count; ++u) {
    ring.wait(u);
    if (!ring.last_step(u)) ring.send(u + per_step, out, ring.part(u, 1));
    if (u + kWindow < count) receive(u + kWindow);
  }
  ring.finish();
}

void ring_reduce_scatter(Exchange& exchange, const Blocks& blocks, const Reduction& reduction,
                         std::byte* in, std::byte* out) {
  Ring ring(exchange, blocks);
  const int64_t count = ring.count();
  const int64_t per_step = exchange.size() > 1 ? count / (exchange.size() - 1) : 0;
  std::byte* scratch = exchange.scratch(kWindow * ring.chunk_bytes());
  const auto slot = [&](int64_t u) { return scratch + u % kWindow * ring.chunk_bytes(); };
  for (int64_t u = 0; u < per_step; ++u) ring.send(u, in, ring.part(u, 1));
  for (int64_t u = 0; u < std::min(kWindow, count); ++u) {
    ring.receive(u, slot(u), ring.part(u, 2));
  }
  for (int64_t u = 0; u < count; ++u) {
    ring.wait(u);
    const Ring::Part part = ring.part(u, 2);
    std::byte* own = in + part.begin * blocks.width;
    const std::array<const void*, 2> sources = {slot(u), own};
    const bool last = ring.last_step(u);
    const int64_t within = part.begin - blocks.begin(exchange.me());
    kernels::host_reduce(exchange.isa(),
                         {.reduction = reduction.kind,
                          .sources = sources.data(),
                          .count = 2,
                          .dtype = reduction.dtype,
                          .out = last ? out + within * size_of(reduction.out_dtype) : own,
                          .out_dtype = last ? reduction.out_dtype : reduction.dtype,
                          .n = part.length,
                          .scale = last ? reduction.scale : 1});
    if (!last) ring.send(u + per_step, in, part);
    if (u + kWindow < count) ring.receive(u + kWindow, slot(u), ring.part(u + kWindow, 2));
  }
  ring.finish();
}

void ring_broadcast(Exchange& exchange, std::span<std::byte> inout, int root) {
  const int size = exchange.size();
  const int position = (exchange.me() - root + size) % size;
  const int left = (exchange.me() + size - 1) % size;
  const int right = (exchange.me() + 1) % size;
  const auto total = static_cast<int64_t>(inout.size());
  const int64_t chunks = (total + kChunkBytes - 1) / kChunkBytes;
  const auto chunk = [&](int64_t c) {
    const int64_t begin = c * kChunkBytes;
    return inout.subspan(static_cast<size_t>(begin),
                         static_cast<size_t>(std::min(kChunkBytes, total - begin)));
  };
  Exchange::Tickets receives, sends;
  for (int64_t c = 0; c < chunks && position > 0; ++c) {
    receives.push_back(exchange.receive(left, c, chunk(c)));
  }
  for (int64_t c = 0; c < chunks; ++c) {
    if (position > 0) exchange.wait(receives[static_cast<size_t>(c)]);
    if (position < size - 1) sends.push_back(exchange.send(right, c, chunk(c)));
  }
  exchange.wait(sends);
}

}  // namespace zpp
