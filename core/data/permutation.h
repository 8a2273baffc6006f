// A random order that is computed instead of stored.
#pragma once

#include <cstdint>

namespace zpp {

/// A pseudo-random permutation of 0 .. size-1: a Feistel network of Philox rounds over the smallest
/// power of two that holds `size`; results outside are fed through again until one is inside (cycle
/// walking), twice on average at most.
class Permutation {
 public:
  /// `seed` and `stream` select the permutation.
  /// Errors:  kInvalidArgument unless 0 < size <= 2^62.
  Permutation(int64_t size, uint64_t seed, uint64_t stream);

  int64_t size() const { return size_; }
  /// Image of `index`, which must be in range.
  int64_t operator()(int64_t index) const;

 private:
  uint64_t once(uint64_t value) const;

  int64_t size_;
  uint64_t seed_, stream_;
  int left_bits_ = 0, right_bits_ = 0;
};

}  // namespace zpp
