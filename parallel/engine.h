// One training step of one process: forward, backward, gradient accumulation, guard, update.
//
// The loss of a step is the mean over all its targets that are not ignored, however the batch is
// cut into micro-batches: each micro-batch's backward pass starts from its share of the step's
// targets, so gradients are exact with masked tokens too.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/data/token_loader.h"
#include "core/runtime.h"
#include "model/model.h"
#include "model/nn/resident.h"
#include "parallel/optimizer.h"

namespace zpp {

struct EngineOptions {
  DType compute = DType::kF32;  // f32, bf16 (with f32 master weights) or f64
  uint64_t seed = 0;            // of initial weights and dropout
  bool recompute = false;       // re-run each unit's forward in backward
  double grad_clip = 0.0;       // largest global norm of the gradient; 0: no clipping
  OptimizerConfig optimizer;
};

/// What a step did.
struct StepStats {
  double loss = 0;               // nats per token
  double grad_norm = 0;          // of the whole model, before clipping
  double grad_norm_clipped = 0;  // after it
  double lr = 0;
  int64_t tokens = 0;    // targets that were not ignored
  bool skipped = false;  // loss or gradient was not finite: weights and moments are as before
};

class Engine {
 public:
  using MakeModel = std::function<std::unique_ptr<Model>(const Scope&)>;

  /// Builds the model and enqueues its initial weights. `runtime` must outlive the engine.
  /// Errors: those of the model's constructor; kOutOfMemory
  Engine(Runtime& runtime, const EngineOptions& options, const MakeModel& make_model);

  /// Blocks the host until the step is done. `step` selects the random numbers of dropout. The
  /// micro-batches are neighbouring samples in ascending order.
  /// Errors: kInvalidArgument if there is no target in any of them; the stream's first error
  StepStats train_step(int64_t step, double lr, std::span<const HostBatch> micro_batches);

  /// Mean loss over all targets of `batches`, in nats per token; 0 without any. Blocks the host.
  double evaluate(std::span<const HostBatch> batches);

  /// Logits of the token that follows the last of `tokens`, of which the last `fill` are text and
  /// the ones before are left out by a document mask. Blocks the host.
  std::vector<double> next_logits(const std::vector<int32_t>& tokens, int64_t fill);

  /// Which tensor holds the first NaN or Inf, as a phrase: weights before gradients, since bad
  /// weights make all gradients bad. Blocks the host.
  std::string describe_nonfinite();

  const ParameterTable& parameters() const { return table_; }
  Model& model() { return *model_; }
  const Optimizer& optimizer() const { return optimizer_; }
  int64_t weight_bytes() const;
  int64_t grad_bytes() const;

 private:
  Batch upload(const HostBatch& batch);
  /// Whether any element of `view` is NaN or Inf.
  bool nonfinite(const View& view, const Tensor& flag);

  Runtime& runtime_;
  const EngineOptions options_;
  ParameterTable table_;
  std::unique_ptr<Model> model_;
  ResidentHooks hooks_;
  Optimizer optimizer_;
  Tensor loss_, sum_squares_, guard_;  // f64 scalars of a step
};

}  // namespace zpp
