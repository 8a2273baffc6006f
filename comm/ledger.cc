#include "comm/ledger.h"

#include <algorithm>

namespace zpp {
namespace {

void add_to(std::vector<int64_t>& sums, const std::vector<int64_t>& more) {
  sums.resize(std::max(sums.size(), more.size()));
  for (size_t i = 0; i < more.size(); ++i) sums[i] += more[i];
}

}  // namespace

void Ledger::add(const std::string& group, Operation operation, double seconds,
                 const std::vector<int64_t>& sent_bytes) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[{group, operation}];
  entry.calls += 1;
  entry.seconds += seconds;
  entry.sent_bytes.resize(static_cast<size_t>(levels_) + 1);
  add_to(entry.sent_bytes, sent_bytes);
}

std::map<Ledger::Key, Ledger::Entry> Ledger::entries() const {
  const std::lock_guard lock(mutex_);
  return entries_;
}

std::vector<int64_t> Ledger::sent_bytes() const {
  const std::lock_guard lock(mutex_);
  std::vector<int64_t> sums(static_cast<size_t>(levels_) + 1);
  for (const auto& [key, entry] : entries_) add_to(sums, entry.sent_bytes);
  return sums;
}

double Ledger::seconds() const {
  const std::lock_guard lock(mutex_);
  double sum = 0;
  for (const auto& [key, entry] : entries_) sum += entry.seconds;
  return sum;
}

void Ledger::reset() {
  const std::lock_guard lock(mutex_);
  entries_.clear();
}

}  // namespace zpp
