#include "tools/bench/collective_timer.h"

#include <algorithm>
#include <chrono>
#include <limits>

namespace zpp {

double CollectiveTimer::largest(double value) const {
  const View agreed = agreed_.view();
  *agreed.as<double>() = value;
  world_.all_reduce(agreed, ReduceOp::kMax).synchronize();
  return *agreed.as<double>();
}

double CollectiveTimer::best_seconds(const std::function<Event()>& start, double budget_s) const {
  using Clock = std::chrono::steady_clock;
  const auto timed = [&] {
    world_.barrier().synchronize();
    const Clock::time_point begin = Clock::now();
    start().synchronize();
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  const double first = std::max(timed(), 1e-6);
  // All ranks must do as many.
  const int runs = static_cast<int>(largest(std::clamp(budget_s / first, 5.0, 1000.0)));
  double best = std::numeric_limits<double>::infinity();
  for (int run = 0; run < runs; ++run) best = std::min(best, largest(timed()));
  return best;
}

}  // namespace zpp
