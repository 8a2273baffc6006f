// Which of several files the next sample comes from.
#pragma once

#include <cstdint>
#include <vector>

namespace zpp {

/// Deals an endless row of samples to sources in proportion to their weights, without randomness:
/// after any number n of samples, source s has had its share w_s * n to within less than one
/// sample. The schedule repeats after period() samples, so looking up sample i takes no search and
/// no history. Weights count as fractions with a common denominator of at most 65536: exact for
/// weights such as 0.7 and 0.3, otherwise rounded to 1/65536 of the whole.
/// Source:  Tijdeman 1980, "The chairman assignment problem".
class SampleSchedule {
 public:
  struct Place {
    int64_t source;
    int64_t index;  // how many samples this source has given before
  };

  /// Sources of weight 0 are never drawn.
  /// Errors: kInvalidArgument if a weight is negative or not finite, all are zero, or there are
  /// more than 1024.
  explicit SampleSchedule(const std::vector<double>& weights);

  int64_t period() const { return static_cast<int64_t>(order_.size()); }
  Place at(int64_t sample) const;

 private:
  void deal();

  std::vector<int64_t> parts_;   // samples of each source in a period
  std::vector<uint16_t> order_;  // source of each sample of a period
  std::vector<uint32_t> index_;  // and how often that source came before in the period
};

}  // namespace zpp
