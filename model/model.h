// What a model is to the rest of the framework.
#pragma once

#include "core/tensor.h"
#include "model/nn/unit.h"

namespace zpp {

/// A micro-batch on the device.
struct Batch {
  Tensor tokens;      // (B, T) i32
  Tensor targets;     // (B, T) i32, -1 is ignored; empty when only logits are wanted
  Tensor doc_start;   // (B, T) i32, or empty: see TapeOptions::doc_start
  int64_t valid = 0;  // number of targets that are not -1: what the mean is over
};

class Model : public Module {
 public:
  explicit Model(const Scope& scope) : Module(scope), root_(scope.unit()) {}

  /// Mean negative log-likelihood over the targets that are not ignored, in nats, a scalar of f32
  /// (f64 for f64 models); 0 without any.
  virtual Value loss(Tape& tape, const Batch& batch) = 0;
  /// (B, V) f32 (f64) logits of the token that follows the last position of each row.
  virtual Value logits(Tape& tape, const Batch& batch) = 0;
  /// Forward and backward of one token in a full context, without recomputation; the FLOPs that MFU
  /// counts.
  virtual double flops_per_token() const = 0;

  /// loss() or logits() between the root unit's hooks: what engines call.
  Value run_loss(Tape& tape, const Batch& batch);
  Value run_logits(Tape& tape, const Batch& batch);

 private:
  ParameterUnit& root_;
};

}  // namespace zpp
