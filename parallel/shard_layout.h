// Who holds which part of a unit's flat buffer: pure arithmetic.
//
// Let s_l be the ranks of a group at level l (s_0 = 1), and P <= G <= O the levels that parameters,
// gradients and optimizer state are spread over. A unit's flat buffer of V elements is padded to a
// multiple of grid * world (ZeroWires::grid), so every cut falls on a multiple of grid. It is cut s_P ways
// between the ranks of a group of level P, each part again (s_G / s_P) ways between the ranks that
// have the same place in their groups of level P, and so on: a rank's optimizer part lies inside its
// gradient part, which lies inside its parameter part.
//
// Traffic of one optimizer step with K micro-batches: bytes that a rank sends over links of class c
// (those inside a group of level c but not of level c - 1) when every collective is done level by
// level (Algorithm::kTwoLevel), with e_c = 1 / s_(c-1) - 1 / s_c and V now in bytes on the wire:
//
//   gather parameters     c <= P:      A K V e_c     A = 2, or 1 for what stays between forward and
//                                                    backward: the root, and the last unit forward
//   reduce gradients      c <= G:        K V e_c
//   at the boundary       G < c <= O:      V e_c     reduce-scatter to the optimizer's part
//                         O < c:         2 V e_c     all-reduce between its copies
//   updated weights       P < c <= O:      V e_c     gather back to the parameters' part
//
// On N nodes of n ranks the n ranks of a node send I = n V e_2 = (1 - 1/N) V per term over slow links
// and each X = V e_1 = (1 - 1/n) V over fast ones.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/topology.h"
#include "parallel/zero_config.h"

namespace zpp {

/// A part of a flat buffer.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

class ShardLayout {
 public:
  /// Elements that parameters and shards start on a multiple of.
  static constexpr int64_t kAlignment = 64;

  ShardLayout(const Topology& topology, const ShardLevels& levels, int rank);

  /// Ranks that hold one copy of parameters, gradients and optimizer state together.
  int params_ranks() const { return params_ranks_; }
  int grads_ranks() const { return grads_ranks_; }
  int optimizer_ranks() const { return optimizer_ranks_; }

  /// The parts that this rank holds of a buffer of `flat` elements.
  Range params(int64_t flat) const;
  Range grads(int64_t flat) const;
  Range optimizer(int64_t flat) const;
  /// Whether this rank's optimizer part is the copy that counts: of those ranks each element is held
  /// by exactly one.
  bool counts() const { return first_copy_; }

 private:
  int params_ranks_, grads_ranks_, optimizer_ranks_;
  int params_place_, grads_place_, optimizer_place_;  // in the group that a part is cut between
  bool first_copy_;
};

/// A unit as its traffic sees it.
struct UnitTraffic {
  int64_t flat = 0;   // elements, padded
  bool kept = false;  // between forward and backward
};

/// Bytes that one rank sends in a training step by link class (index 0 is unused), as the formulas
/// above say, with wire formats of `wire_bytes` per element.
std::vector<int64_t> step_traffic(const Topology& topology, const ShardLevels& levels,
                                  const std::vector<UnitTraffic>& units, int64_t micro_batches,
                                  int64_t wire_bytes);

}  // namespace zpp
