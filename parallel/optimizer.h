// AdamW or SGD over the flat buffers of a model's units, or the part of them that a rank has.
//
// The weights that are optimised are the f32 master copy; when the model itself computes in f32 (or
// f64) its weights are the master copy and nothing is held twice.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/config.h"
#include "core/runtime.h"
#include "model/nn/parameter.h"

namespace zpp {

/// The `optimizer` section.
struct OptimizerConfig {
  std::string name = "adamw";
  double lr = 3e-4;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;

  void fields(Fields& f);
};

/// The part of a unit that one rank optimises: elements [begin, begin + weights.numel()) of its flat
/// buffer.
struct OptimizerPart {
  ParameterUnit* unit = nullptr;
  int64_t begin = 0;
  View weights;  // in the compute dtype
  View grads;    // f32 (f64 for f64 models)
  /// Keep a master copy even if the weights have its dtype: others change them.
  bool separate_master = false;
};

/// Weight decay is applied to matrices (parameters of rank 2 and more) only: norms and biases keep
/// what the loss wants. Frozen parameters stay as they were initialised; a unit of nothing else has no
/// master copy and no moments.
class Optimizer {
 public:
  /// Allocates the state of `parts`, whose units must be laid out and whose views must stay valid.
  Optimizer(Runtime& runtime, const std::vector<OptimizerPart>& parts,
            const OptimizerConfig& config);

  /// Enqueues initial weights (a function of the parameters' names and `seed`) and zero moments.
  void initialize(uint64_t seed);

  /// Enqueues one update of part i from its gradients with the verdict of kernels::step_guard in
  /// `guard`. Does nothing on a skipped step.
  void apply(size_t i, double lr, const View& guard);

  size_t parts() const { return parts_.size(); }
  int64_t master_bytes() const { return master_bytes_; }  // 0 when the weights are the master copy
  int64_t moment_bytes() const { return moment_bytes_; }

 private:
  /// Neighbouring parameters that are treated alike, [begin, end) of the part.
  struct Run {
    int64_t begin, end;
    bool decay;
    bool frozen;
  };
  struct PartState {
    OptimizerPart part;
    Tensor master, m, v;
    std::vector<Run> runs;
    View master_view() const { return master ? master.view() : part.weights; }
  };
  static std::vector<Run> runs_of(const OptimizerPart& part);
  bool has_moments() const { return config_.name == "adamw"; }

  Runtime& runtime_;
  const OptimizerConfig config_;
  std::vector<PartState> parts_;
  int64_t master_bytes_ = 0, moment_bytes_ = 0;
};

}  // namespace zpp
