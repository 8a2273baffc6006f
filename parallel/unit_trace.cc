#include "parallel/unit_trace.h"

#include <algorithm>

#include "core/rng.h"

namespace zpp {

void UnitTrace::begin() {
  if (!following_ || current_.size() != recorded_.size()) recorded_ = current_;
  current_.clear();
  following_ = !recorded_.empty();
}

bool UnitTrace::enter(ParameterUnit& unit) {
  const size_t at = current_.size();
  current_.push_back(&unit);
  if (!following_) return false;
  const ParameterUnit* expected = at < recorded_.size() ? recorded_[at] : nullptr;
  if (expected == &unit) return false;
  following_ = false;
  surprise_ = {expected, &unit};
  return true;
}

std::span<ParameterUnit* const> UnitTrace::next(int64_t n) const {
  if (!following_) return {};
  const size_t at = std::min(current_.size(), recorded_.size());
  return std::span(recorded_).subspan(at, std::min(static_cast<size_t>(n), recorded_.size() - at));
}

uint64_t UnitTrace::hash() const {
  uint64_t hash = current_.size();
  for (const ParameterUnit* unit : current_) hash = mix_hash(hash, hash_name(unit->name()));
  return hash;
}

}  // namespace zpp
