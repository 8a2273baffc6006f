#include "comm/tree.h"

#include <array>
#include <bit>

namespace zpp {

void tree_broadcast(Exchange& exchange, const Levels& levels, std::span<std::byte> inout,
                    int root) {
  if (inout.empty()) return;
  const int me = levels.me();
  for (int j = levels.count() - 1; j >= 0; --j) {
    // One rank of each group of the level has the bytes: the one at the root's place.
    if (me % levels.inner(j) != root % levels.inner(j)) continue;
    const int ways = levels.ways(j);
    const int holder = root % levels.outer(j) / levels.inner(j);
    const int v = (levels.place(j) - holder + ways) % ways;  // the holder is 0
    const auto peer = [&](int w) { return levels.peer(j, (w + holder) % ways); };
    int bit = 1;
    while (bit < ways && (v & bit) == 0) bit *= 2;
    if (v != 0) exchange.wait(exchange.receive(peer(v - bit), j, inout));
    Exchange::Tickets sends;
    for (bit /= 2; bit > 0; bit /= 2) {
      if (v + bit < ways) sends.push_back(exchange.send(peer(v + bit), j, inout));
    }
    exchange.wait(sends);
  }
}

void direct_broadcast(Exchange& exchange, std::span<std::byte> inout, int root) {
  if (inout.empty()) return;
  if (exchange.me() != root) return exchange.wait(exchange.receive(root, 0, inout));
  Exchange::Tickets sends;
  for (int shift = 1; shift < exchange.size(); ++shift) {
    sends.push_back(exchange.send((root + shift) % exchange.size(), 0, inout));
  }
  exchange.wait(sends);
}

namespace {

class TreeAllReduce {
 public:
  TreeAllReduce(Exchange& exchange, const Reduction& reduction, int64_t count, std::byte* inout)
      : exchange_(exchange),
        reduction_(reduction),
        count_(count),
        mine_{inout, static_cast<size_t>(count * size_of(reduction.dtype))},
        theirs_{exchange.scratch(static_cast<int64_t>(mine_.size())), mine_.size()} {}

  void run() {
    const int me = exchange_.me();
    // The first `core` ranks double; each of the others gives its numbers to one of them before and
    // gets the result after.
    const auto core = static_cast<int>(std::bit_floor(static_cast<unsigned>(exchange_.size())));
    const int guests = exchange_.size() - core;
    if (me >= core) {
      exchange_.wait(exchange_.send(me - core, 0, mine_));
      exchange_.wait(exchange_.receive(me - core, 1, mine_));
      return;
    }
    if (me < guests) {
      exchange_.wait(exchange_.receive(me + core, 0, theirs_));
      add(mine_.data(), theirs_.data(), 1);
    }
    for (int bit = 1; bit < core; bit *= 2) double_up(bit, me ^ bit);
    if (reduction_.scale != 1) add(mine_.data(), nullptr, reduction_.scale);
    if (me < guests) exchange_.wait(exchange_.send(me + core, 1, mine_));
  }

 private:
  void double_up(int bit, int partner) {
    const Exchange::Ticket send = exchange_.send(partner, 2 + bit, mine_);
    const Exchange::Ticket receive = exchange_.receive(partner, 2 + bit, theirs_);
    exchange_.wait(receive);
    exchange_.wait(send);
    if (exchange_.me() < partner) {
      add(mine_.data(), theirs_.data(), 1);
    } else {
      add(theirs_.data(), mine_.data(), 1);
    }
  }

  /// mine = scale * (a + b), or scale * a.
  void add(const std::byte* a, const std::byte* b, double scale) {
    const std::array<const void*, 2> sources = {a, b};
    kernels::host_reduce(exchange_.isa(), {.reduction = reduction_.kind,
                                           .sources = sources.data(),
                                           .count = b == nullptr ? 1 : 2,
                                           .dtype = reduction_.dtype,
                                           .out = mine_.data(),
                                           .out_dtype = reduction_.dtype,
                                           .n = count_,
                                           .scale = scale});
  }

  Exchange& exchange_;
  const Reduction& reduction_;
  const int64_t count_;
  const std::span<std::byte> mine_, theirs_;
};

}  // namespace

void tree_all_reduce(Exchange& exchange, const Reduction& reduction, int64_t count,
                     std::byte* inout) {
  if (count > 0) TreeAllReduce(exchange, reduction, count, inout).run();
}

void tree_barrier(Exchange& exchange) {
  const int size = exchange.size();
  for (int distance = 1; distance < size; distance *= 2) {
    const Exchange::Ticket send = exchange.send((exchange.me() + distance) % size, distance, {});
    const Exchange::Ticket receive =
        exchange.receive((exchange.me() - distance + size) % size, distance, {});
    exchange.wait(receive);
    exchange.wait(send);
  }
}

}  // namespace zpp
