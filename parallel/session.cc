#include "parallel/session.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/data/tokenizer.h"
#include "kernels/gemm.h"
#include "parallel/sampler.h"
#include "parallel/schedule.h"

namespace zpp {

Runtime::Options runtime_options(const TrainConfig& config, bool dry) {
  return {.device = {}, .threads = static_cast<int>(config.run.threads), .dry = dry};
}

double measure_peak_flops(Runtime& runtime, DType compute) {
  const int64_t bytes = kernels::gemm_peak_scratch_bytes(compute);
  const Tensor scratch = runtime.tensor({bytes}, DType::kU8);
  if (runtime.dry()) return 0.0;
  return kernels::measure_gemm_peak(runtime.compute(), compute, scratch.view());
}

std::unique_ptr<Engine> make_engine(Runtime& runtime, const TrainConfig& config) {
  const EngineOptions options{.compute = config.compute(),
                              .seed = static_cast<uint64_t>(config.run.seed),
                              .recompute = config.train.recompute == "unit",
                              .grad_clip = config.train.grad_clip,
                              .optimizer = config.optimizer};
  return std::make_unique<Engine>(runtime, options, [&config](const Scope& scope) {
    return config.model_entry->create(scope, config.model);
  });
}

StepStats run_step(Engine& engine, const TrainConfig& config, int64_t step,
                   const BatchSource& source) {
  std::vector<HostBatch> micro_batches;
  const int64_t first = step * config.train.global_batch;
  for (int64_t i = 0; i < config.micro_batches(); ++i) {
    micro_batches.push_back(source(first + i * config.micro_batch(), config.micro_batch()));
  }
  const double lr = learning_rate(config.schedule, config.optimizer.lr, step, config.train.steps);
  return engine.train_step(step, lr, micro_batches);
}

double run_evaluation(Engine& engine, const TrainConfig& config, int64_t windows,
                      const BatchSource& source) {
  std::vector<HostBatch> batches;
  for (int64_t first = 0; first < windows; first += config.micro_batch()) {
    batches.push_back(source(first, std::min(config.micro_batch(), windows - first)));
  }
  return engine.evaluate(batches);
}

std::string run_sample(Engine& engine, const TrainConfig& config,
                       const std::function<bool()>& stop) {
  const ByteTokenizer tokenizer;
  const std::vector<int32_t> ids = sample(engine, tokenizer.encode(config.sample.prompt),
                                          {.tokens = config.sample.tokens,
                                           .context = config.facts.context,
                                           .temperature = config.sample.temperature,
                                           .top_k = config.sample.top_k,
                                           .seed = static_cast<uint64_t>(config.run.seed)},
                                          stop);
  // Vocabularies other than bytes are not known here.
  if (*std::max_element(ids.begin(), ids.end()) >= tokenizer.vocab()) {
    return fmt::format("{}", fmt::join(ids, " "));
  }
  return tokenizer.decode(ids);
}

}  // namespace zpp
