// The steps that a run is made of, as functions of its configuration. The trainer takes them with
// data, the plan takes the same ones in a dry runtime to learn their memory.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/runtime.h"
#include "parallel/engine.h"
#include "parallel/train_config.h"

namespace zpp {

Runtime::Options runtime_options(const TrainConfig& config, bool dry);

/// FLOP/s of matrix products in the compute dtype: what MFU is a share of. 0 in a dry runtime.
double measure_peak_flops(Runtime& runtime, DType compute);

EngineOptions engine_options(const TrainConfig& config);
Engine::MakeModel model_maker(const TrainConfig& config);

/// The engine of this process, a rank of `mesh` if there is one. Collective.
/// Errors: kInvalidArgument if the configuration does not fit that many ranks
std::unique_ptr<Engine> make_engine(Runtime& runtime, const TrainConfig& config,
                                    const Mesh* mesh = nullptr,
                                    std::function<void(const std::string&)> warn = {});

/// Batches of a step: samples [first, first + samples) of whatever the source is.
using BatchSource = std::function<HostBatch(int64_t first, int64_t samples)>;

/// Step `step` (from 0) of the run, on samples [step * global_batch, (step + 1) * global_batch), of
/// which each rank takes its share: of every micro-batch neighbouring ones. `stop`: this rank would
/// like to end the run. Collective.
StepStats run_step(Engine& engine, const TrainConfig& config, int64_t step,
                   const BatchSource& source, bool stop = false);

/// Mean loss over the first `windows` of `source`, micro-batch by micro-batch. Collective.
double run_evaluation(Engine& engine, const TrainConfig& config, int64_t windows,
                      const BatchSource& source);

/// The final sample: the prompt and what follows, as text if all ids are bytes and else as a list
/// of ids. Collective; ends early when a rank is asked to `stop`.
std::string run_sample(Engine& engine, const TrainConfig& config,
                       const std::function<bool()>& stop = {});

}  // namespace zpp
