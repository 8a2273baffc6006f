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

EngineOptions engine_options(const TrainConfig& config) {
  return {.compute = config.compute(),
          .seed = static_cast<uint64_t>(config.run.seed),
          .recompute = config.train.recompute == "unit",
          .grad_clip = config.train.grad_clip,
          .optimizer = config.optimizer,
          .frozen = config.train.frozen,
          .zero = config.zero};
}

Engine::MakeModel model_maker(const TrainConfig& config) {
  return [&config](const Scope& scope) { return config.model_entry->create(scope, config.model); };
}

std::unique_ptr<Engine> make_engine(Runtime& runtime, const TrainConfig& config, const Mesh* mesh,
                                    std::function<void(const std::string&)> warn) {
  if (mesh != nullptr) check_world(config, mesh->topology.world());
  EngineOptions options = engine_options(config);
  options.warn = std::move(warn);
  return std::make_unique<Engine>(runtime, options, model_maker(config), mesh);
}

StepStats run_step(Engine& engine, const TrainConfig& config, int64_t step,
                   const BatchSource& source, bool stop) {
  const int64_t world = engine.world(), micro = config.micro_batch(world);
  std::vector<HostBatch> micro_batches;
  const int64_t first = step * config.train.global_batch + engine.rank() * micro;
  for (int64_t i = 0; i < config.micro_batches(world); ++i) {
    micro_batches.push_back(source(first + i * micro * world, micro));
  }
  const double lr = learning_rate(config.schedule, config.optimizer.lr, step, config.train.steps);
  return engine.train_step(step, lr, micro_batches, stop);
}

double run_evaluation(Engine& engine, const TrainConfig& config, int64_t windows,
                      const BatchSource& source) {
  const int64_t world = engine.world(), micro = config.micro_batch(world);
  std::vector<HostBatch> batches;
  for (int64_t first = engine.rank() * micro; first < windows; first += micro * world) {
    batches.push_back(source(first, std::min(micro, windows - first)));
  }
  return engine.evaluate(batches);
}

std::string run_sample(Engine& engine, const TrainConfig& config,
                       const std::function<bool()>& stop) {
  // All ranks generate the same text, so they have to end it together.
  const auto agreed = [&] { return engine.any_rank(stop && stop()); };
  const ByteTokenizer tokenizer;
  const std::vector<int32_t> ids = sample(engine, tokenizer.encode(config.sample.prompt),
                                          {.tokens = config.sample.tokens,
                                           .context = config.facts.context,
                                           .temperature = config.sample.temperature,
                                           .top_k = config.sample.top_k,
                                           .seed = static_cast<uint64_t>(config.run.seed)},
                                          agreed);
  // Vocabularies other than bytes are not known here.
  if (*std::max_element(ids.begin(), ids.end()) >= tokenizer.vocab()) {
    return fmt::format("{}", fmt::join(ids, " "));
  }
  return tokenizer.decode(ids);
}

}  // namespace zpp
