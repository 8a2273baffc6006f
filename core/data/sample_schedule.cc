#include "core/data/sample_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"

namespace zpp {
namespace {

constexpr int64_t kMaxPeriod = 65536;
constexpr size_t kMaxSources = 1024;

void check(const std::vector<double>& weights) {
  if (weights.empty() || weights.size() > kMaxSources) {
    throw Error(Code::kInvalidArgument,
                fmt::format("data: expected 1 to {} weighted files, found {}", kMaxSources,
                            weights.size()));
  }
  for (size_t s = 0; s < weights.size(); ++s) {
    if (!std::isfinite(weights[s]) || weights[s] < 0)
      throw Error(Code::kInvalidArgument,
                  fmt::format("data: weight {} of file {}, expected a number that is not negative",
                              weights[s], s));
  }
  if (std::accumulate(weights.begin(), weights.end(), 0.0) <= 0)
    throw Error(Code::kInvalidArgument, "data: the weights of all files are zero");
}

// The shares times `period`, if all of them are integers.
bool whole_parts(const std::vector<double>& shares, int64_t period, std::vector<int64_t>& parts) {
  for (size_t s = 0; s < shares.size(); ++s) {
    const double exact = shares[s] * static_cast<double>(period), rounded = std::round(exact);
    if (std::abs(exact - rounded) > 1e-9 * std::max(1.0, exact)) return false;
    if (rounded == 0 && shares[s] > 0) return false;
    parts[s] = static_cast<int64_t>(rounded);
  }
  return std::accumulate(parts.begin(), parts.end(), int64_t{0}) == period;
}

// Largest remainders; a share above zero never rounds to zero.
std::vector<int64_t> rounded_parts(const std::vector<double>& shares, int64_t period) {
  std::vector<int64_t> parts(shares.size());
  std::vector<size_t> by_remainder(shares.size());
  std::iota(by_remainder.begin(), by_remainder.end(), size_t{0});
  for (size_t s = 0; s < shares.size(); ++s)
    parts[s] = std::max<int64_t>(shares[s] > 0 ? 1 : 0,
                                 static_cast<int64_t>(shares[s] * static_cast<double>(period)));
  const auto missing = [&](size_t s) {
    return shares[s] * static_cast<double>(period) - static_cast<double>(parts[s]);
  };
  std::stable_sort(by_remainder.begin(), by_remainder.end(),
                   [&](size_t a, size_t b) { return missing(a) > missing(b); });
  int64_t left = period - std::accumulate(parts.begin(), parts.end(), int64_t{0});
  for (size_t i = 0; left > 0; i = (i + 1) % parts.size(), --left) ++parts[by_remainder[i]];
  // Too much was given out only when tiny shares were lifted to one; the largest can spare it.
  for (; left < 0; ++left) --*std::max_element(parts.begin(), parts.end());
  return parts;
}

}  // namespace

SampleSchedule::SampleSchedule(const std::vector<double>& weights) : parts_(weights.size()) {
  check(weights);
  const double largest = *std::max_element(weights.begin(), weights.end());
  std::vector<double> shares(weights.size());
  double sum = 0;  // of weights scaled to at most one, which cannot overflow
  for (double w : weights) sum += w / largest;
  for (size_t s = 0; s < weights.size(); ++s) shares[s] = weights[s] / largest / sum;
  int64_t period = 1;
  while (period <= kMaxPeriod && !whole_parts(shares, period, parts_)) ++period;
  if (period > kMaxPeriod) {
    period = kMaxPeriod;
    parts_ = rounded_parts(shares, period);
  }
  order_.resize(static_cast<size_t>(period));
  index_.resize(static_cast<size_t>(period));
  deal();
}

// Sample j goes, among the sources that would not run ahead of their share by it, to the one that
// must have it first in order not to fall behind. With n sources both bounds are 1 - 1/(2n-2); all
// terms are scaled to integers.
void SampleSchedule::deal() {
  const auto period = static_cast<int64_t>(order_.size());
  const auto n = static_cast<int64_t>(
      std::count_if(parts_.begin(), parts_.end(), [](int64_t p) { return p > 0; }));
  const int64_t scale = std::max<int64_t>(1, 2 * n - 2);
  std::vector<int64_t> given(parts_.size(), 0);
  for (int64_t j = 1; j <= period; ++j) {
    size_t best = parts_.size();
    int64_t best_slack = 0;
    for (size_t s = 0; s < parts_.size(); ++s) {
      if (parts_[s] == 0) continue;
      const int64_t behind =
          scale * (parts_[s] * j - given[s] * period);  // scale * period * (share - given)
      if (n > 1 && behind < period) continue;
      const int64_t slack = scale * period - period - behind;
      if (best == parts_.size() || slack * parts_[best] < best_slack * parts_[s]) {
        best = s;
        best_slack = slack;
      }
    }
    order_[static_cast<size_t>(j - 1)] = static_cast<uint16_t>(best);
    index_[static_cast<size_t>(j - 1)] = static_cast<uint32_t>(given[best]++);
  }
}

SampleSchedule::Place SampleSchedule::at(int64_t sample) const {
  const int64_t cycle = sample / period();
  const auto within = static_cast<size_t>(sample % period());
  const int64_t source = order_[within];
  return {source, cycle * parts_[static_cast<size_t>(source)] + index_[within]};
}

}  // namespace zpp
