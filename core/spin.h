// Waiting without sleeping, for moments shorter than a trip through the kernel's scheduler.
#pragma once

#include <chrono>

namespace zpp {

/// Polls `ready` for at most `budget`; returns whether it became true. The processor is told that
/// this is a wait, so a sibling hyper-thread runs at full speed meanwhile.
template <class Ready>
bool spin_until(const Ready& ready, std::chrono::nanoseconds budget) {
  constexpr int kPollsPerClockRead = 16;
  if (ready()) return true;
  if (budget.count() <= 0) return false;
  const auto deadline = std::chrono::steady_clock::now() + budget;
  do {
    for (int i = 0; i < kPollsPerClockRead; ++i) {
      if (ready()) return true;
      __builtin_ia32_pause();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return ready();
}

}  // namespace zpp
