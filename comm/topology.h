// Which ranks are near each other: nested groups from the single rank to the world.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace zpp {

/// How far two ranks are apart: 0 the same rank, 1 the same innermost group (a node), ..., levels()
/// the world only. Ledgers count by it.
using LinkClass = int;

/// A chain of nested groups, self < node < ... < world. Groups of one level have equal sizes and
/// their ranks are neighbours: rank = (world / size) blocks of consecutive numbers at each level.
class Topology {
 public:
  /// `sizes`: ranks per group from the innermost level on, each a divisor of the next, the last one
  /// the world: {4, 8} is 2 nodes of 4, {2, 4, 8} is 2 x 2 x 2, {1, 4} is 4 nodes of one rank.
  /// Errors: kInvalidArgument
  static Topology nested(std::span<const int> sizes);
  /// From the name of each rank's host, in rank order. Uneven hosts or ranks that are not
  /// neighbours are an error that lists them.
  static Topology from_hosts(std::span<const std::string> hosts);

  int world() const { return sizes_.back(); }
  /// Levels above self; 1 when the world is one node.
  int levels() const { return static_cast<int>(sizes_.size()); }
  /// Ranks of a group at `level` (0: 1, levels(): the world).
  int group_size(int level) const;
  /// The group of `rank` at `level`, in rank order.
  std::vector<int> group(int level, int rank) const;
  LinkClass link(int a, int b) const;
  /// "self", "node", "level2", ..., "world" (which is also what a single node is called).
  std::string level_name(int level) const;
  /// Errors: kInvalidArgument for a name that is no level
  int level_of(std::string_view name) const;

 private:
  explicit Topology(std::vector<int> sizes) : sizes_(std::move(sizes)) {}
  std::vector<int> sizes_;
};

}  // namespace zpp
