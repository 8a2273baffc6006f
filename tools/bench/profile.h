// Where the time of a training step goes: by kernel family, against what the machine can do.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "core/stream.h"
#include "core/types.h"
#include "tools/bench/gemm_bench.h"
#include "tools/bench/measure.h"

namespace zpp {

/// What one step did.
struct StepProfile {
  struct Family {
    int64_t calls = 0;
    double seconds = 0;
    double bytes = 0, flops = 0;    // as kernels count them, see Work
    double bandwidth_bound_s = 0;   // what bytes alone would have taken, call by call
    double arithmetic_bound_s = 0;  // what flops alone would have taken
    double bound_s = 0;             // the longer one of each call
  };
  using Product = std::pair<std::string, std::array<int64_t, 3>>;  // task, shape

  double seconds = 0;       // of the whole step, by the host's clock
  int64_t page_faults = 0;  // of the process; no step but the first should need new memory
  std::map<std::string, Family> families;
  std::map<Product, double> product_flops;
};

/// The machine, measured in the same run.
struct MachineLimits {
  double bytes_per_s = 0;  // memcpy, read + written
  double flops_per_s = 0;  // best product
};

/// Observes a stream and makes a StepProfile of each step.
class Profiler final : public TaskObserver {
 public:
  explicit Profiler(const MachineLimits& limits) : limits_(limits) {}

  void task_ran(const TaskRecord& task) noexcept override;
  /// Call both while the stream is idle: what was seen in between is the step.
  void begin_step();
  StepProfile end_step();

 private:
  const MachineLimits limits_;
  StepProfile step_;
  std::chrono::steady_clock::time_point begin_;
  int64_t faults_at_begin_ = 0;
};

/// A line for each family, the longest first: calls, time, share of the step, work, rates, and the
/// time that the limit which binds it would have allowed, as a share of the time taken. More than
/// 100 % are possible: small arrays stay in the caches.
void print_profile(const StepProfile& step, const MachineLimits& limits, const Print& print);

/// The rate in FLOP/s at which the step's own products run alone, each at its best: their sum over
/// the sum of their times. 0 if there were none.
double gemm_rate_on_shapes(Runtime& runtime, const StepProfile& step, DType dtype, double seconds);

}  // namespace zpp
