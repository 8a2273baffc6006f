// How long collectives take, as slow as the slowest rank.
#pragma once

#include <functional>

#include "comm/communicator.h"
#include "core/runtime.h"

namespace zpp {

class CollectiveTimer {
 public:
  /// Uses `world` between runs, too; both must outlive this.
  CollectiveTimer(Runtime& runtime, Communicator& world)
      : world_(world), agreed_(runtime.tensor({1}, DType::kF64)) {}

  /// Shortest time in seconds from all ranks' start to the last rank's end of what `start` enqueues,
  /// over as many runs as fit into `budget_s`, at least five. All ranks call it; blocks.
  double best_seconds(const std::function<Event()>& start, double budget_s) const;
  /// The largest of all ranks' values.
  double largest(double value) const;

 private:
  Communicator& world_;
  const Tensor agreed_;
};

}  // namespace zpp
