// How the members of a group lie in the topology, and how a buffer is cut among them: the arithmetic
// that all algorithms share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/topology.h"

namespace zpp {

/// Sizes of nested groups that the members form, from the innermost on, ascending, the last one all
/// of them: {4, 8} for two whole nodes of 4, {8} for members that lie unevenly or all in one node
/// or each in a node of its own.
std::vector<int> level_chain(const Topology& topology, const std::vector<int>& members);

/// A chain of nested groups seen by one member. At level j (0 is the innermost) the `ways` peers of
/// a member are those of its group of `outer` members that have its place in their groups of
/// `inner` members.
class Levels {
 public:
  Levels(std::vector<int> chain, int me) : chain_(std::move(chain)), me_(me) {}

  int count() const { return static_cast<int>(chain_.size()); }
  int size() const { return chain_.back(); }
  int me() const { return me_; }
  int outer(int j) const { return chain_[static_cast<size_t>(j)]; }
  int inner(int j) const { return j == 0 ? 1 : chain_[static_cast<size_t>(j) - 1]; }
  int ways(int j) const { return outer(j) / inner(j); }
  /// This member's number among its peers.
  int place(int j) const { return me_ / inner(j) % ways(j); }
  /// Peer number a.
  int peer(int j, int a) const { return me_ + (a - place(j)) * inner(j); }
  /// Groups of `outer` members: how many pieces of a buffer each exchange of the level is about.
  int pieces(int j) const { return size() / outer(j); }

 private:
  std::vector<int> chain_;
  int me_;
};

/// A buffer of `count` elements of `width` bytes, cut into blocks of `per` elements; the last blocks
/// are shorter or empty when `count` does not divide. Or cut anywhere: at `ends`, the longest block
/// having `per` elements.
struct Blocks {
  int64_t count;
  int64_t per;
  int64_t width;
  const int64_t* ends = nullptr;  // of blocks; not owned

  static Blocks cut(int64_t count, int parts, int64_t width) {
    return {count, (count + parts - 1) / parts, width};
  }
  /// Block i ends at ends[i], which must outlive the Blocks.
  static Blocks at(std::span<const int64_t> ends, int64_t width);
  int64_t begin(int block) const { return block == 0 ? 0 : end(block - 1); }
  int64_t end(int block) const {
    return ends != nullptr ? ends[block] : std::min((block + 1) * per, count);
  }
  int64_t length(int block) const { return end(block) - begin(block); }
};

/// Elements [begin, begin + length) of every block.
struct Chunk {
  int64_t begin, length;

  /// The part of it that a block of `block_length` elements has.
  int64_t of(int64_t block_length) const {
    return std::clamp<int64_t>(block_length - begin, 0, length);
  }
};

/// Blocks of `per` elements in chunks of about `bytes`; at least one.
class Chunks {
 public:
  Chunks(const Blocks& blocks, int64_t bytes);
  int64_t count() const { return count_; }
  int64_t length() const { return length_; }
  Chunk operator[](int64_t i) const { return {i * length_, length_}; }

 private:
  int64_t length_;
  int64_t count_;
};

}  // namespace zpp
