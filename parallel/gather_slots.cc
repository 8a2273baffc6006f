#include "parallel/gather_slots.h"

#include <algorithm>

namespace zpp {

GatherSlots::GatherSlots(Runtime& runtime, int64_t count, int64_t numel, DType dtype)
    : slots_(static_cast<size_t>(count)) {
  for (Slot& slot : slots_) slot.buffer = runtime.tensor({numel}, dtype);
}

GatherSlots::Slot* GatherSlots::find(const ParameterUnit& unit) {
  const auto at = std::find_if(slots_.begin(), slots_.end(),
                               [&unit](const Slot& slot) { return slot.unit == &unit; });
  return at == slots_.end() ? nullptr : &*at;
}

GatherSlots::Slot* GatherSlots::take(ParameterUnit& unit) {
  Slot* oldest = nullptr;
  int64_t taken = 0;
  for (Slot& slot : slots_) {
    if (slot.state != State::kFree) {
      ++taken;
    } else if (oldest == nullptr || slot.freed < oldest->freed) {
      oldest = &slot;
    }
  }
  if (oldest == nullptr) return nullptr;
  oldest->state = State::kFetched;
  oldest->unit = &unit;
  peak_units_ = std::max(peak_units_, taken + 1);
  return oldest;
}

void GatherSlots::free_left(const ParameterUnit* keep) {
  for (Slot& slot : slots_) {
    if (slot.state == State::kLeft && slot.unit != keep) free(slot);
  }
}

void GatherSlots::free_unused(const ParameterUnit* keep) {
  free_left(keep);
  for (Slot& slot : slots_) {
    if (slot.state != State::kFetched || slot.unit == keep) continue;
    slot.released = slot.ready;
    free(slot);
  }
}

void GatherSlots::free(Slot& slot) {
  slot.state = State::kFree;
  slot.unit = nullptr;
  slot.freed = ++freed_;
}

int64_t GatherSlots::bytes() const {
  int64_t bytes = 0;
  for (const Slot& slot : slots_) bytes += slot.buffer.view().bytes();
  return bytes;
}

}  // namespace zpp
