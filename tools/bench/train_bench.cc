#include "tools/bench/train_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "core/files.h"
#include "core/human.h"
#include "parallel/session.h"
#include "parallel/train_data.h"

namespace zpp {

void bench_train(const TrainBench& options, const Print& print) {
  if (options.steps < 1) throw Error(Code::kInvalidArgument, "at least one step is needed");
  const TrainConfig config =
      parse_train_config(read_file(options.config_file), options.config_file, options.overrides);
  const TrainData data = synthetic_data(config);
  Runtime runtime(runtime_options(config, /*dry=*/false));
  const double peak = measure_peak_flops(runtime, config.compute());
  const std::unique_ptr<Engine> engine = make_engine(runtime, config);
  print(fmt::format("{}: {} parameters, {}, {} x {} tokens a step, {} threads, peak {}FLOP/s",
                    config.run.name, with_commas(engine->parameters().numel()),
                    config.precision.compute, config.train.global_batch, config.facts.context,
                    runtime.workers().threads(), human_number(peak)));

  const auto tokens = static_cast<double>(config.tokens_per_step());
  std::vector<double> rates;
  for (int64_t step = 0; step < options.warmup_steps + options.steps; ++step) {
    const auto begin = std::chrono::steady_clock::now();
    const StepStats stats = run_step(*engine, config, step, data.train);
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    const bool timed = step >= options.warmup_steps;
    if (timed) rates.push_back(tokens / seconds);
    print(fmt::format("step {:>3}  {:8.1f} ms  {:>9.0f} tok/s  loss {:.4f}{}", step + 1,
                      1e3 * seconds, tokens / seconds, stats.loss, timed ? "" : "  (warm-up)"));
  }
  std::nth_element(rates.begin(), rates.begin() + static_cast<int64_t>(rates.size() / 2),
                   rates.end());
  const double rate = rates[rates.size() / 2];
  print(fmt::format("median {:.0f} tok/s, {}FLOP/s, mfu {:.1f} %, memory held {}", rate,
                    human_number(rate * engine->model().flops_per_token()),
                    100.0 * rate * engine->model().flops_per_token() / peak,
                    human_bytes(runtime.pool().stats().held_bytes)));
}

}  // namespace zpp
