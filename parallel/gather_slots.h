// A few buffers that gathered weights of units pass through. Their number bounds the weights that
// are alive at once, whatever the size of the model.
#pragma once

#include <cstdint>
#include <vector>

#include "core/runtime.h"
#include "model/nn/parameter.h"

namespace zpp {

class GatherSlots {
 public:
  enum class State : uint8_t {
    kFree,
    kFetched,  // a unit's weights are here or on their way
    kInUse,    // and bound to the unit
    kLeft,     // released, but not yet overwritten
  };
  struct Slot {
    Tensor buffer;
    State state = State::kFree;
    ParameterUnit* unit = nullptr;  // null when free
    Event ready;                    // the weights are there
    Event released;                 // whoever used the buffer last is done
    uint64_t freed = 0;             // in the order in which slots became free
    View weights() const { return buffer.view().slice(0, 0, unit->flat_numel()); }
  };

  /// `count` buffers of `numel` elements.
  GatherSlots(Runtime& runtime, int64_t count, int64_t numel, DType dtype);

  /// The slot that a unit's weights are in or on their way to; null if there is none.
  Slot* find(const ParameterUnit& unit);
  /// The slot that has been free for longest, now fetched for `unit`; null if none is free. Its
  /// memory may be written once `released` is complete.
  Slot* take(ParameterUnit& unit);
  /// Frees the slots that have been left, except that of `keep` (may be null).
  void free_left(const ParameterUnit* keep);
  /// Frees those that have been fetched in vain, too.
  void free_unused(const ParameterUnit* keep);

  /// Most units that were in use, ready or on their way at once.
  int64_t peak_units() const { return peak_units_; }
  int64_t bytes() const;

 private:
  void free(Slot& slot);

  std::vector<Slot> slots_;
  uint64_t freed_ = 0;
  int64_t peak_units_ = 0;
};

}  // namespace zpp
