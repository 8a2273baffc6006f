// Learning rate over the steps of a run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/config.h"

namespace zpp {

/// The `schedule` section.
struct ScheduleConfig {
  std::string name = "cosine";
  int64_t warmup_steps = 0;
  double min_lr = 0.0;
  std::optional<int64_t> decay_steps;

  void fields(Fields& f);
};

/// Learning rate of step `step` (from 0) in a run of `total_steps`, at most `peak`.
///
/// Warm-up is linear and reaches `peak` in step warmup_steps - 1. After it:
///   constant  peak
///   linear    straight down to min_lr at step decay_steps (default: total_steps), min_lr beyond
///   cosine    half a cosine down to min_lr at step decay_steps (default: total_steps), min_lr
///             beyond
///   wsd       peak, then straight down to min_lr over the last decay_steps steps (default: a fifth
///             of total_steps)
/// Source: wsd is Hu et al. 2024, arXiv:2404.06395, with a linear decay
double learning_rate(const ScheduleConfig& config, double peak, int64_t step, int64_t total_steps);

}  // namespace zpp
