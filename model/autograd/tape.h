// Reverse-mode differentiation on a linear tape.
//
// Forward operations append nodes; the backward pass walks them in reverse, which is a topological
// order, and frees what each kept as it passes. A closure captures what its gradient needs: Values
// whose data it reads, Slots for inputs whose data it does not, and `Parameter&`, never a
// parameter's View, since weights may be released and gathered again in between.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "core/pool.h"
#include "core/rng.h"
#include "core/tensor.h"

namespace zpp {

class Backward;
class Tape;
class UnitHooks;

/// Where the gradient of a value goes: its place on a tape without its data.
struct Slot {
  int64_t node = -1;  // -1: no gradient wanted
  Shape shape;
  DType dtype = DType::kF32;
};

/// A tensor and its place on a tape. Cheap to copy; keeps the tensor alive.
class Value {
 public:
  Value() = default;
  Value(Tape& tape, Tensor tensor, int64_t node)
      : tape_(&tape), tensor_(std::move(tensor)), node_(node) {}

  Tape& tape() const;
  /// Errors: kFailedPrecondition for a loss that is computed in the backward pass and has not been
  /// yet
  const View& view() const;
  const Tensor& tensor() const;
  const Shape& shape() const { return tensor_.shape(); }
  DType dtype() const { return tensor_.dtype(); }
  bool needs_grad() const { return node_ >= 0; }
  Slot slot() const { return {node_, tensor_.shape(), tensor_.dtype()}; }

 private:
  Tape* tape_ = nullptr;
  Tensor tensor_;
  int64_t node_ = -1;
};

/// What a step knows about its batch and its random numbers; the same for all tapes of a
/// micro-batch.
struct TapeOptions {
  bool training = true;    // dropout on, gradients wanted
  bool recompute = false;  // re-run a unit's forward in backward instead of keeping activations
  uint64_t seed = 0;
  uint64_t step = 0;
  /// This micro-batch holds samples [first_sample, first_sample + samples) of the step's batch:
  /// random numbers are drawn by sample, so that they do not depend on how a batch is cut into
  /// micro-batches and ranks.
  int64_t first_sample = 0;
  int64_t samples = 1;
  /// (B, T) i32, index in the row of the first token of each token's document; absent: a row is one
  /// document.
  View doc_start = {};
};

class Tape {
 public:
  using Closure = std::function<void(Backward&)>;

  Tape(Pool& pool, Stream& stream, UnitHooks& hooks, const TapeOptions& options);
  /// A tape for part of `outer`'s work (a recomputed unit): same context, random numbers from
  /// `rng_position` on.
  Tape(const Tape& outer, bool recording, uint64_t rng_position);
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  Stream& stream() const { return stream_; }
  Pool& pool() const { return pool_; }
  UnitHooks& hooks() const { return hooks_; }
  bool training() const { return options_.training; }
  bool recompute() const { return options_.recompute; }
  /// False in evaluation and in the first run of a recomputed unit: record() then keeps nothing.
  bool recording() const { return recording_; }
  const View& doc_start() const { return options_.doc_start; }

  /// The random stream of the next random operation over a (samples, ...) tensor of `numel`
  /// elements.
  RngKey next_rng(std::string_view op, int64_t numel);
  uint64_t rng_position() const { return rng_position_; }
  void skip_rng_to(uint64_t position) { rng_position_ = position; }

  Tensor empty(const Shape& shape, DType dtype) const {
    return Tensor(shape, dtype, pool_, stream_);
  }
  /// A value without gradient.
  Value constant(Tensor tensor);
  /// A value whose gradient is written to `grad` (which the caller keeps alive).
  Value leaf(Tensor tensor, const Grad& grad);
  /// The result of an operation: y, computed by kernels already enqueued, and how its gradient
  /// flows on. `op` must be a literal.
  Value record(const char* op, Tensor y, Closure backward);
  /// A scalar loss whose kernels run in `backward`, together with its gradient; its data cannot be
  /// read before. When the tape does not record, use record().
  Value record_deferred(const char* op, Tensor loss, Closure backward);
  /// Something to do when the backward pass comes by, whatever gradients exist.
  void record_marker(const char* what, std::function<void()> fn);

  /// Runs the backward pass from a scalar with d = scale, consuming the tape. Returns once
  /// everything is enqueued.
  void backward(const Value& loss, double scale);
  /// From any value, with the gradient given.
  void backward(const Value& y, Tensor dy);

  size_t nodes() const { return nodes_.size(); }

 private:
  friend class Backward;
  friend class Value;

  struct Node {
    const char* op;
    Closure backward;
    std::function<void()> marker;
    Tensor grad;
    Grad bound;  // a leaf's
    bool written = false;
    bool deferred = false;
  };

  int64_t push(Node node);
  void run_backward();

  Pool& pool_;
  Stream& stream_;
  UnitHooks& hooks_;
  const TapeOptions options_;
  const bool recording_;
  uint64_t rng_position_ = 0;
  std::vector<Node> nodes_;
};

/// What a backward closure sees.
class Backward {
 public:
  Backward(Tape& tape, Tensor dy) : tape_(tape), dy_(std::move(dy)) {}

  Tape& tape() const { return tape_; }
  Stream& stream() const { return tape_.stream(); }
  const View& dy() const { return dy_.view(); }
  const Tensor& dy_tensor() const { return dy_; }
  Tensor empty(const Shape& shape, DType dtype) const { return tape_.empty(shape, dtype); }

  /// Where to put the gradient of an input; empty when it wants none. The caller must write it.
  Grad grad(const Slot& input);
  /// The gradient of this input is `dy`, possibly reshaped (shared, not copied, where possible).
  void pass(const Slot& input, const Tensor& dy);

 private:
  Tape& tape_;
  Tensor dy_;
};

}  // namespace zpp
