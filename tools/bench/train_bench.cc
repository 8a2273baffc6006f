#include "tools/bench/train_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "core/files.h"
#include "core/human.h"
#include "parallel/session.h"
#include "parallel/train_data.h"
#include "tools/bench/profile.h"

namespace zpp {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// The step that half of the others are faster than.
StepProfile median_of(std::vector<StepProfile> steps) {
  const auto middle = steps.begin() + static_cast<int64_t>(steps.size() / 2);
  std::nth_element(steps.begin(), middle, steps.end(),
                   [](const auto& a, const auto& b) { return a.seconds < b.seconds; });
  return *middle;
}

class Bench {
 public:
  Bench(const TrainBench& options, const TrainConfig& config, const Print& print)
      : options_(options), config_(config), print_(print) {}

  void run() {
    limits_.flops_per_s = measure_peak_flops(runtime_, config_.compute());
    if (options_.profile) limits_.bytes_per_s = memory_rate();
    const Clock::time_point begin = Clock::now();
    engine_ = make_engine(runtime_, config_);
    runtime_.compute().synchronize();
    const double start_s = seconds_since(begin);
    print_(
        fmt::format("{}: {} parameters, {}, {} x {} tokens a step, {} threads, peak {}FLOP/s, "
                    "initial weights in {:.1f} s",
                    config_.run.name, with_commas(engine_->parameters().numel()),
                    config_.precision.compute, config_.train.global_batch, config_.facts.context,
                    runtime_.workers().threads(), human_number(limits_.flops_per_s), start_s));
    report(median_of(steps()));
  }

 private:
  /// In a runtime of its own, whose memory goes before the model's comes.
  double memory_rate() {
    constexpr double kSeconds = 0.3;
    Runtime runtime(runtime_options(config_, /*dry=*/false));
    return memcpy_bandwidth(runtime, kSeconds);
  }

  std::vector<StepProfile> steps() {
    const TrainData data = synthetic_data(config_);
    Profiler profiler(limits_);
    if (options_.profile) runtime_.compute().observe(&profiler);
    std::vector<StepProfile> timed;
    for (int64_t step = 0; step < options_.warmup_steps + options_.steps; ++step) {
      profiler.begin_step();
      const StepStats stats = run_step(*engine_, config_, step, data.train);
      StepProfile profile = profiler.end_step();
      const bool warm_up = step < options_.warmup_steps;
      print_(fmt::format("step {:>3}  {:8.1f} ms  {:>9.0f} tok/s  loss {:.4f}{}", step + 1,
                         1e3 * profile.seconds, tokens() / profile.seconds, stats.loss,
                         warm_up ? "  (warm-up)" : ""));
      if (!warm_up) timed.push_back(std::move(profile));
    }
    runtime_.compute().observe(nullptr);
    runtime_.compute().synchronize();
    return timed;
  }

  void report(const StepProfile& median) {
    const double rate = tokens() / median.seconds;
    const double flops = rate * engine_->model().flops_per_token();
    print_(fmt::format("median {:.0f} tok/s, {}FLOP/s, mfu {:.1f} %, memory held {}", rate,
                       human_number(flops), 100.0 * flops / limits_.flops_per_s,
                       human_bytes(runtime_.pool().stats().held_bytes)));
    if (!options_.profile) return;
    print_profile(median, limits_, print_);
    const double alone =
        gemm_rate_on_shapes(runtime_, median, config_.compute(), options_.product_seconds);
    print_(
        fmt::format("model FLOP/s {}, {:.1f} % of the {}FLOP/s at which the model's own products "
                    "run alone",
                    human_number(flops), 100.0 * flops / alone, human_number(alone)));
  }

  double tokens() const { return static_cast<double>(config_.tokens_per_step()); }

  const TrainBench& options_;
  const TrainConfig& config_;
  const Print& print_;
  Runtime runtime_{runtime_options(config_, /*dry=*/false)};
  MachineLimits limits_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace

void bench_train(const TrainBench& options, const Print& print) {
  if (options.steps < 1) throw Error(Code::kInvalidArgument, "at least one step is needed");
  const TrainConfig config =
      parse_train_config(read_file(options.config_file), options.config_file, options.overrides);
  Bench(options, config, print).run();
}

}  // namespace zpp
