#include "parallel/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace zpp {
namespace {

/// How far `step` is between `begin` and `end`, in [0, 1].
double fraction(int64_t step, int64_t begin, int64_t end) {
  if (step >= end) return 1.0;
  if (step <= begin) return 0.0;
  return static_cast<double>(step - begin) / static_cast<double>(end - begin);
}

}  // namespace

void ScheduleConfig::fields(Fields& f) {
  f("name", name, "shape of the learning rate after the warm-up",
    {"cosine", "linear", "constant", "wsd"})(
      "warmup_steps", warmup_steps, "steps over which the learning rate rises from 0", 0,
      int64_t{1} << 40)("min_lr", min_lr, "learning rate that the decay ends at", 0.0, 1e3)(
      "decay_steps", decay_steps,
      "cosine, linear: step at which min_lr is reached, default train.steps; wsd: length of the "
      "decay at the end, default a fifth of train.steps",
      1, int64_t{1} << 40);
}

double learning_rate(const ScheduleConfig& config, double peak, int64_t step, int64_t total_steps) {
  if (step < config.warmup_steps) {
    return peak * static_cast<double>(step + 1) / static_cast<double>(config.warmup_steps);
  }
  const double range = peak - config.min_lr;
  if (config.name == "cosine" || config.name == "linear") {
    const int64_t end = config.decay_steps.value_or(total_steps);
    const double done = fraction(step, config.warmup_steps, end);
    const double left =
        config.name == "linear" ? 1.0 - done : 0.5 * (1.0 + std::cos(std::numbers::pi * done));
    return config.min_lr + range * left;
  }
  if (config.name == "wsd") {
    const int64_t length = config.decay_steps.value_or(std::max<int64_t>(total_steps / 5, 1));
    const int64_t begin = std::max(total_steps - length, config.warmup_steps);
    return config.min_lr + range * (1.0 - fraction(step, begin, total_steps));
  }
  return peak;
}

}  // namespace zpp
