#include "comm/flight_record.h"

#include <fmt/format.h>

#include "core/json_tree.h"

namespace zpp {

double FlightRecord::now() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
}

uint64_t FlightRecord::begin(const std::string& group, Operation operation, uint32_t sequence,
                             int64_t bytes) {
  const std::lock_guard lock(mutex_);
  operations_.push_back({group, operation, sequence, bytes, now(), -1, {}});
  if (operations_.size() > keep_) operations_.pop_front();
  return next_++;
}

void FlightRecord::end(uint64_t handle, const std::string& error) {
  const std::lock_guard lock(mutex_);
  const uint64_t age = next_ - handle;  // 1: the newest
  if (age > operations_.size()) return;
  Entry& entry = operations_[operations_.size() - age];
  entry.end_s = now();
  entry.error = error;
}

std::string FlightRecord::text() const {
  const std::lock_guard lock(mutex_);
  std::string text;
  for (const Entry& entry : operations_) {
    text += fmt::format(
        R"({{"group": {}, "operation": "{}", "sequence": {}, "bytes": {}, "begin_s": {:.6f}, )",
        json_quote(entry.group), to_string(entry.operation), entry.sequence, entry.bytes,
        entry.begin_s);
    text += entry.end_s < 0 ? R"("running_s": )" + fmt::format("{:.6f}", now() - entry.begin_s)
                            : R"("end_s": )" + fmt::format("{:.6f}", entry.end_s);
    if (!entry.error.empty()) text += R"(, "error": )" + json_quote(entry.error);
    text += "}\n";
  }
  return text;
}

}  // namespace zpp
