// Which ranks are near each other: nested groups from the single rank to the world.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/store.h"

namespace zpp {

/// How far two ranks are apart: 0 the same rank, 1 the same innermost group (a node), ..., levels()
/// the world only. Ledgers count by it.
using LinkClass = int;

/// A chain of nested groups, self < node < ... < world. Groups of one level have equal sizes and
/// their ranks are neighbours: rank = (world / size) blocks of consecutive numbers at each level.
class Topology {
 public:
  /// `sizes`: ranks per group from the innermost level on, each a divisor of the next, the last one
  /// the world: {4, 8} is 2 nodes of 4, {2, 4, 8} is 2 x 2 x 2. A leading 1 (self) is implied.
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
  /// "self", "node", "level2", ..., "world".
  std::string level_name(int level) const;
  /// Errors: kInvalidArgument for a name that is no level
  int level_of(std::string_view name) const;

 private:
  explicit Topology(std::vector<int> sizes) : sizes_(std::move(sizes)) {}
  std::vector<int> sizes_;
};

/// This rank's place in a job, agreed on through the store.
struct Rendezvous {
  int rank = 0;
  std::vector<std::string> hosts;  // by rank
  std::vector<int64_t> pids;       // by rank
  Topology topology;
};

/// Publishes this rank's host and pid and collects everybody's. `nested` empty: nodes are the hosts.
/// Blocks until all ranks have come.
/// Errors: kTimeout naming the ranks that are missing
Rendezvous meet(Store& store, int rank, int world, std::span<const int> nested, Millis timeout);

}  // namespace zpp
