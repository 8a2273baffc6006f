// AdamW over the flat buffers of a model's units.
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

/// Weight decay is applied to matrices (parameters of rank 2 and more) only: norms and biases keep
/// what the loss wants.
class Optimizer {
 public:
  /// Allocates the state of the units of `table`, which must be laid out and have weights and
  /// gradients bound for as long as apply() is called. `table` and `runtime` must outlive this.
  Optimizer(Runtime& runtime, ParameterTable& table, const OptimizerConfig& config);

  /// Enqueues initial weights (a function of the parameters' names and `seed`) and zero moments.
  void initialize(uint64_t seed);

  /// Enqueues one update from the units' gradients with the verdict of kernels::step_guard in
  /// `guard`. Does nothing on a skipped step.
  void apply(double lr, const View& guard);

  int64_t master_bytes() const { return master_bytes_; }  // 0 when the weights are the master copy
  int64_t moment_bytes() const { return moment_bytes_; }

 private:
  /// Neighbouring parameters that are decayed alike, [begin, end) of a unit's flat buffer.
  struct Run {
    int64_t begin, end;
    bool decay;
  };
  struct UnitState {
    ParameterUnit* unit;
    Tensor master, m, v;
    std::vector<Run> runs;
    View master_view() const { return master ? master.view() : unit->weights(); }
  };
  static std::vector<Run> runs_of(const ParameterUnit& unit);

  Runtime& runtime_;
  const OptimizerConfig config_;
  std::vector<UnitState> units_;
  int64_t master_bytes_ = 0, moment_bytes_ = 0;
};

}  // namespace zpp
