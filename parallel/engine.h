// One training step: forward, backward, gradient accumulation, guard, update. Of one process, or of
// a rank among many: parameters, gradients and optimizer state are then spread as the `zero` section
// says, and every function that is marked collective must be called by all ranks.
//
// The loss of a step is the mean over all its targets that are not ignored, however the batch is
// cut into micro-batches and ranks: each micro-batch's backward pass starts from its share of the
// step's targets, so gradients are exact with masked tokens too. To know the share, ranks tell each
// other their numbers of targets when a step starts: one small message that the host waits for,
// having waited for the loss of the step before anyway. Together with it they compare what they
// think they are doing.
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
#include "parallel/optimizer.h"
#include "parallel/rank_groups.h"
#include "parallel/zero_hooks.h"

namespace zpp {

struct EngineOptions {
  DType compute = DType::kF32;  // f32, bf16 (with f32 master weights) or f64
  uint64_t seed = 0;            // of initial weights and dropout
  bool recompute = false;       // re-run each unit's forward in backward
  double grad_clip = 0.0;       // largest global norm of the gradient; 0: no clipping
  OptimizerConfig optimizer = {};
  std::vector<std::string> frozen = {};  // see ParameterTable::freeze()
  ZeroConfig zero = {};
  std::function<void(const std::string&)> warn = {};  // told of what is odd but harmless
};

/// What a step did, all ranks together.
struct StepStats {
  double loss = 0;               // nats per token
  double grad_norm = 0;          // of the whole model, before clipping
  double grad_norm_clipped = 0;  // after it
  double lr = 0;
  int64_t tokens = 0;    // targets that were not ignored
  bool skipped = false;  // loss or gradient was not finite: weights and moments are as before
  bool stop = false;     // a rank had been asked to stop when it called
};

/// What this rank has sent and waited for since its engine was made.
struct CommStats {
  std::vector<int64_t> sent_bytes;  // by link class
  double seconds = 0;               // of all collectives, on their own streams
  double exposed_s = 0;             // that the compute stream stood still for them
};

/// Builds a model whose parameters go into `table` and freezes some of them.
/// Errors: those of `make_model`; kInvalidArgument as ParameterTable::freeze(), naming train.frozen
std::unique_ptr<Model> make_frozen_model(
    ParameterTable& table, const std::function<std::unique_ptr<Model>(const Scope&)>& make_model,
    const std::vector<std::string>& frozen);

class Engine {
 public:
  using MakeModel = std::function<std::unique_ptr<Model>(const Scope&)>;

  /// Builds the model and enqueues its initial weights. `runtime` must outlive the engine, and
  /// `mesh`; without one the process is the world. Collective.
  /// Errors: those of the model's constructor; kOutOfMemory; kInvalidArgument if the mesh cannot do
  ///         what options.zero says; kFailedPrecondition if ranks have different models
  Engine(Runtime& runtime, const EngineOptions& options, const MakeModel& make_model,
         const Mesh* mesh = nullptr);
  /// The engine of rank 0 of a world that is not there, in a dry runtime.
  Engine(Runtime& runtime, const EngineOptions& options, const MakeModel& make_model,
         const Topology& pretended);
  ~Engine();

  /// Blocks the host until loss and norm are known; the update may still be under way on the compute
  /// stream. `step` selects the random numbers of dropout. Rank r's
  /// micro-batch i of b samples each is samples [(i * world + r) * b, ...) of the step, which are
  /// neighbours. `stop`: this rank would like to end the run. Collective.
  /// Errors: kInvalidArgument if there is no target in any of them; kFailedPrecondition if ranks are
  ///         in different steps or run different units; the stream's first error
  StepStats train_step(int64_t step, double lr, std::span<const HostBatch> micro_batches,
                       bool stop = false);

  /// Mean loss over all targets of all ranks' `batches`, of which there may be any number, in nats
  /// per token; 0 without any. Blocks the host. Collective.
  double evaluate(std::span<const HostBatch> batches);

  /// Logits of the token that follows the last of `tokens`, of which the last `fill` are text and
  /// the ones before are left out by a document mask. Blocks the host. Collective, with the same
  /// tokens.
  std::vector<double> next_logits(const std::vector<int32_t>& tokens, int64_t fill);

  /// Which tensor holds the first NaN or Inf, as a phrase: weights before gradients, since bad
  /// weights make all gradients bad. Blocks the host. Collective.
  std::string describe_nonfinite();

  /// Whether any rank says so. Blocks the host. Collective.
  bool any_rank(bool mine);
  /// The sum over the ranks of this node. Blocks the host. Collective.
  int64_t sum_over_node(int64_t mine);
  CommStats comm_stats() const;

  int rank() const { return groups_->rank(); }
  int world() const { return groups_->world(); }
  const RankGroups& groups() const { return *groups_; }
  const ZeroHooks& hooks() const { return hooks_; }
  Stream& compute() { return runtime_.compute(); }
  const ParameterTable& parameters() const { return table_; }
  Model& model() { return *model_; }
  const Optimizer& optimizer() const { return optimizer_; }
  int64_t weight_bytes() const { return hooks_.weight_bytes(); }
  int64_t grad_bytes() const { return hooks_.grads().bytes(); }
  /// Weights of unit i that this rank keeps, at hooks().kept_range(i) of its flat buffer, to be read
  /// by work that is enqueued on compute() from now on.
  View kept_weights(size_t unit) { return hooks_.kept(unit); }
  /// Calls fn(kept_weights(unit)), which may enqueue writes to the part that the optimizer works on
  /// (all of it where that is spread like the parameters); other ranks see them. Collective, except
  /// where parameters are not spread beyond the optimizer's part and nodes have no replica.
  void change_weights(size_t unit, const std::function<void(const View&)>& fn);

 private:
  Engine(Runtime& runtime, const EngineOptions& options, const MakeModel& make_model,
         std::unique_ptr<RankGroups> groups);

  void initialize();
  std::vector<OptimizerPart> optimizer_parts();
  /// Every rank's `mine` (the same number, at most kMostExchanged), one after the other.
  std::vector<int64_t> exchange(const std::vector<int64_t>& mine);
  /// The sum of all ranks' f64 views, on the compute stream.
  void sum_over_world(const View& values);
  void check_same_models();
  int64_t count_targets(int64_t step, std::span<const HostBatch> micro_batches);
  void run_micro_batch(int64_t step, const HostBatch& micro, int64_t first_sample, double share);
  /// What the host learns of a step, once `done` is complete.
  struct Readout {
    std::shared_ptr<const std::vector<double>> sums, guard;
    Event done;
  };
  Readout update(double lr, bool stop);
  /// Enqueues a copy of an f64 view to the host.
  std::shared_ptr<const std::vector<double>> start_reading(const View& values);
  double evaluate_padded(std::span<const HostBatch> batches);
  Batch upload(const HostBatch& batch);
  std::string nonfinite_phrase();
  /// Whether any element of `view` is NaN or Inf; false if it is empty.
  bool nonfinite(const View& view, const Tensor& flag);

  Runtime& runtime_;
  const EngineOptions options_;
  const std::unique_ptr<RankGroups> groups_;
  ParameterTable table_;
  std::unique_ptr<Model> model_;
  ZeroHooks hooks_;
  Optimizer optimizer_;
  static constexpr int64_t kMostExchanged = 4;
  Tensor exchanged_;  // i64, of exchange(): mine and all
  Tensor sums_;       // f64: loss, sum of squares, wishes to stop; of a step
  Tensor guard_;      // f64, see kernels::step_guard
};

}  // namespace zpp
