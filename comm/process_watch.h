// Whether another process of this machine still lives, without asking it.
#pragma once

#include <cstdint>

#include "comm/descriptor.h"

namespace zpp {

/// A descriptor that becomes readable when the process ends.
class ProcessWatch {
 public:
  /// Watches nothing.
  ProcessWatch() = default;
  /// Where the kernel offers no such descriptor it watches nothing.
  explicit ProcessWatch(int64_t pid);

  /// For poll(); negative if nothing is watched.
  int descriptor() const { return descriptor_.get(); }
  bool watches() const { return descriptor_.valid(); }
  bool ended() const;

 private:
  Descriptor descriptor_;
  bool never_there_ = false;
};

}  // namespace zpp
