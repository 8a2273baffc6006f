// `zpp-bench train`: tokens per second of a configuration, on random tokens.
#pragma once

#include <string>
#include <vector>

#include "tools/bench/measure.h"

namespace zpp {

struct TrainBench {
  std::string config_file;
  std::vector<std::string> overrides;  // "path.key=value"
  int64_t steps = 10;                  // timed
  int64_t warmup_steps = 2;            // before them
  bool profile = false;
  double product_seconds = 0.2;  // of a profile, for each product of the model run alone
};

/// Prints model and batch, each step's time and tokens per second, then median tokens per second,
/// its share of the measured GEMM peak, and the memory that was held; with `profile` also where the
/// time of the median step went (see profile.h). Data files of the configuration are not read.
/// Errors: those of the configuration; kInvalidArgument unless steps >= 1
void bench_train(const TrainBench& options, const Print& print);

}  // namespace zpp
