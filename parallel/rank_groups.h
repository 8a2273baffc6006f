// A rank among the others, as its engine sees it: the communicators that follow from how parameters,
// gradients and optimizer state are spread.
#pragma once

#include <exception>
#include <memory>
#include <type_traits>
#include <vector>

#include "comm/mesh.h"
#include "parallel/shard_layout.h"

namespace zpp {

/// The groups of one communication stream. The first four, innermost first, together are the world.
/// Null where a group has one rank. A gather or reduction over several of them goes from one to the next.
struct PlaneGroups {
  Stream* stream = nullptr;           // null in a world of one rank
  Communicator* params = nullptr;     // shares one copy of the parameters
  Communicator* grads = nullptr;      // between params and the ranks that share the gradients
  Communicator* optimizer = nullptr;  // between grads and the ranks that share optimizer state
  Communicator* copies = nullptr;     // between the ranks with the same part of optimizer state
  Communicator* node = nullptr;       // the innermost level, where it is not the world
};

/// Not copied: owns some communicators and refers to the mesh's.
class RankGroups {
 public:
  /// A world of one rank.
  RankGroups();
  /// Collective over the world. `mesh` must outlive this.
  RankGroups(const Mesh& mesh, const ZeroConfig& config);
  /// Rank 0 of a world that is not there, for a dry run: collectives are checked and do nothing.
  RankGroups(const Topology& pretended, const ZeroConfig& config);
  ~RankGroups();
  RankGroups(const RankGroups&) = delete;
  RankGroups& operator=(const RankGroups&) = delete;

  int rank() const { return rank_; }
  int world() const { return topology_.world(); }
  const Topology& topology() const { return topology_; }
  const ShardLevels& levels() const { return levels_; }
  const ShardLayout& layout() const { return layout_; }
  const PlaneGroups& weights() const { return weights_; }
  const PlaneGroups& grads() const { return grads_; }
  /// The world, on the stream of gradients, for what is small and rare: counted under a name of its
  /// own. Null in a world of one rank.
  Communicator* control() const { return control_.get(); }
  /// Of the innermost level; null when it has one rank.
  Communicator* node() const { return node_; }
  const Ledger* ledger() const { return ledger_; }

  /// Makes all collectives here and at the peers fail with this reason.
  void abort(const Error& why) noexcept;
  /// Returns fn(); an exception ends the work of all ranks with its reason.
  template <class Fn>
  std::invoke_result_t<Fn> guarded(Fn&& fn) {
    try {
      return fn();
    } catch (const Error& error) {
      abort(error);
      throw;
    } catch (const std::exception& error) {
      abort(Error(Code::kInternal, error.what()));
      throw;
    }
  }
  /// Waits until both streams have finished what was enqueued, whether it succeeded or not.
  void drain() noexcept;

 private:
  struct Pretended;

  Topology topology_;
  int rank_ = 0;
  ShardLevels levels_;
  ShardLayout layout_;
  PlaneGroups weights_, grads_;
  std::unique_ptr<Pretended> pretended_;
  std::unique_ptr<Communicator> control_;
  Communicator* node_ = nullptr;
  Communicator* weights_world_ = nullptr;
  Communicator* grads_world_ = nullptr;
  const Ledger* ledger_ = nullptr;
};

}  // namespace zpp
