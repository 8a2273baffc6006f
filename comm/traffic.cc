#include "comm/traffic.h"

#include <bit>

#include "comm/levels.h"

namespace zpp {
namespace {

/// Sums up what one member sends.
class Tally {
 public:
  Tally(const Topology& topology, const std::vector<int>& members, int me)
      : topology_(topology),
        members_(members),
        me_(me),
        bytes_(static_cast<size_t>(topology.levels()) + 1) {}

  void send(int member, int64_t bytes) {
    const LinkClass link =
        topology_.link(members_[static_cast<size_t>(me_)], members_[static_cast<size_t>(member)]);
    bytes_[static_cast<size_t>(link)] += bytes;
  }
  int me() const { return me_; }
  int size() const { return static_cast<int>(members_.size()); }
  std::vector<int64_t> bytes() { return std::move(bytes_); }

 private:
  const Topology& topology_;
  const std::vector<int>& members_;
  const int me_;
  std::vector<int64_t> bytes_;
};

/// The peers of each level get the blocks of all groups of the level: those of this rank's place in
/// a gather, those of the peer's in a reduction.
void blocks_by_level(Tally& tally, const Levels& levels, const Blocks& blocks, bool reduction) {
  for (int j = 0; j < levels.count(); ++j) {
    for (int a = 0; a < levels.ways(j); ++a) {
      const int peer = levels.peer(j, a);
      if (peer == tally.me()) continue;
      const int place = (reduction ? peer : tally.me()) % levels.outer(j);
      for (int r = 0; r < levels.pieces(j); ++r) {
        tally.send(peer, blocks.length(r * levels.outer(j) + place) * blocks.width);
      }
    }
  }
}

/// All blocks but one travel to the right: all but the neighbour's own in a gather, all but this
/// rank's own in a reduction.
void blocks_around(Tally& tally, const Blocks& blocks, bool reduction) {
  const int right = (tally.me() + 1) % tally.size();
  const int kept = reduction ? tally.me() : right;
  tally.send(right, (blocks.count - blocks.length(kept)) * blocks.width);
}

void blocks(Tally& tally, const Levels& levels, Algorithm algorithm, const Blocks& cut,
            bool reduction) {
  if (algorithm == Algorithm::kRing) {
    if (tally.size() > 1) blocks_around(tally, cut, reduction);
  } else {
    blocks_by_level(tally, levels, cut, reduction);
  }
}

void doubling(Tally& tally, int64_t bytes) {
  const auto core = static_cast<int>(std::bit_floor(static_cast<unsigned>(tally.size())));
  const int me = tally.me();
  if (me >= core) return tally.send(me - core, bytes);
  for (int bit = 1; bit < core; bit *= 2) tally.send(me ^ bit, bytes);
  if (me < tally.size() - core) tally.send(me + core, bytes);
}

void broadcast(Tally& tally, const Levels& levels, Algorithm algorithm, int64_t bytes, int root) {
  const int me = tally.me();
  const int size = tally.size();
  if (algorithm == Algorithm::kDirect) {
    for (int peer = 0; peer < size && me == root; ++peer) {
      if (peer != root) tally.send(peer, bytes);
    }
    return;
  }
  if (algorithm == Algorithm::kRing) {
    if ((me - root + size) % size < size - 1) tally.send((me + 1) % size, bytes);
    return;
  }
  for (int j = levels.count() - 1; j >= 0; --j) {
    if (me % levels.inner(j) != root % levels.inner(j)) continue;
    const int ways = levels.ways(j);
    const int holder = root % levels.outer(j) / levels.inner(j);
    const int v = (levels.place(j) - holder + ways) % ways;
    // v passes on to v + bit for the powers of two below its own lowest bit.
    for (int bit = 1; bit < ways && (v & bit) == 0; bit *= 2) {
      if (v + bit < ways) tally.send(levels.peer(j, (v + bit + holder) % ways), bytes);
    }
  }
}

void all_to_all(Tally& tally, const Levels& levels, int64_t block) {
  for (int j = 0; j < levels.count(); ++j) {
    for (int a = 0; a < levels.ways(j); ++a) {
      const int peer = levels.peer(j, a);
      if (peer != tally.me()) tally.send(peer, levels.pieces(j) * levels.inner(j) * block);
    }
  }
}

}  // namespace

bool applies(Algorithm algorithm, Operation operation, const Topology& topology,
             const std::vector<int>& members) {
  switch (algorithm) {
    case Algorithm::kDirect:
      return operation != Operation::kBarrier;
    case Algorithm::kRing:
      return operation != Operation::kBarrier && operation != Operation::kAllToAll &&
             members.size() > 1;
    case Algorithm::kTwoLevel:
      return operation != Operation::kBarrier && level_chain(topology, members).size() > 1;
    case Algorithm::kTree:
      return operation == Operation::kBarrier || operation == Operation::kBroadcast ||
             operation == Operation::kAllReduce;
  }
  return false;
}

std::vector<int64_t> predicted_bytes(const Topology& topology, const std::vector<int>& members,
                                     int me, const Collective& collective, Algorithm algorithm) {
  Tally tally(topology, members, me);
  const int size = tally.size();
  const Levels levels(
      algorithm == Algorithm::kTwoLevel ? level_chain(topology, members) : std::vector<int>{size},
      me);
  const Blocks cut =
      Blocks::cut(collective.bytes / collective.element_bytes, size, collective.element_bytes);
  switch (collective.operation) {
    case Operation::kAllGather:
      blocks(tally, levels, algorithm, cut, false);
      break;
    case Operation::kReduceScatter:
      blocks(tally, levels, algorithm, cut, true);
      break;
    case Operation::kAllReduce:
      if (algorithm == Algorithm::kTree) {
        doubling(tally, collective.bytes);
      } else {
        blocks(tally, levels, algorithm, cut, true);
        blocks(tally, levels, algorithm, cut, false);
      }
      break;
    case Operation::kBroadcast:
      broadcast(tally, levels, algorithm, collective.bytes, collective.root);
      break;
    case Operation::kAllToAll:
      all_to_all(tally, levels, collective.bytes / size);
      break;
    case Operation::kBarrier:
      break;
  }
  return tally.bytes();
}

}  // namespace zpp
