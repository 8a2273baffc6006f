// The order in which a pass enters units, learnt once and then used to look ahead.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/nn/parameter.h"

namespace zpp {

class UnitTrace {
 public:
  /// A new pass starts, at the first position.
  void begin();

  /// Where the pass has left the recorded order.
  struct Surprise {
    const ParameterUnit* expected;  // null: the pass was expected to be over
    const ParameterUnit* found;
  };
  /// The pass enters a unit. The rest of a pass that leaves the recorded order is recorded anew.
  /// Returns whether it left it just now, in which case surprise() tells.
  bool enter(ParameterUnit& unit);
  const Surprise& surprise() const { return surprise_; }

  /// Up to `n` units that follow in the recorded order; none while recording.
  std::span<ParameterUnit* const> next(int64_t n) const;
  /// Of the units entered since begin(), in order: equal on ranks that run the same program.
  uint64_t hash() const;

 private:
  std::vector<ParameterUnit*> recorded_, current_;
  bool following_ = false;
  Surprise surprise_{};
};

}  // namespace zpp
