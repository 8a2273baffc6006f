#include "model/autograd/tape.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "kernels/elementwise.h"

namespace zpp {

Tape& Value::tape() const {
  if (tape_ == nullptr)
    throw Error(Code::kFailedPrecondition, "an empty Value was used: it belongs to no tape");
  return *tape_;
}

const Tensor& Value::tensor() const {
  const auto node = static_cast<size_t>(node_);
  if (node_ >= 0 && node < tape().nodes_.size() && tape().nodes_[node].deferred) {
    throw Error(
        Code::kFailedPrecondition,
        fmt::format("{}: this loss is computed in the backward pass and cannot be read before it",
                    tape().nodes_[node].op));
  }
  return tensor_;
}

const View& Value::view() const { return tensor().view(); }

Tape::Tape(Pool& pool, Stream& stream, UnitHooks& hooks, const TapeOptions& options)
    : pool_(pool),
      stream_(stream),
      hooks_(hooks),
      options_(options),
      recording_(options.training) {}

Tape::Tape(const Tape& outer, bool recording, uint64_t rng_position)
    : pool_(outer.pool_),
      stream_(outer.stream_),
      hooks_(outer.hooks_),
      options_(outer.options_),
      recording_(recording),
      rng_position_(rng_position) {}

RngKey Tape::next_rng(std::string_view op, int64_t numel) {
  const int64_t per_sample = numel / std::max<int64_t>(options_.samples, 1);
  RngKey key;
  key.seed = options_.seed;
  key.name_hash = mix_hash(mix_hash(hash_name(op), options_.step), rng_position_++);
  key.offset = static_cast<uint64_t>(options_.first_sample * per_sample);
  return key;
}

int64_t Tape::push(Node node) {
  nodes_.push_back(std::move(node));
  return static_cast<int64_t>(nodes_.size()) - 1;
}

Value Tape::constant(Tensor tensor) { return Value(*this, std::move(tensor), -1); }

Value Tape::leaf(Tensor tensor, const Grad& grad) {
  if (!recording_ || !grad) return constant(std::move(tensor));
  const int64_t node =
      push({.op = "leaf", .backward = {}, .marker = {}, .grad = {}, .bound = grad});
  return Value(*this, std::move(tensor), node);
}

Value Tape::record(const char* op, Tensor y, Closure backward) {
  if (!recording_) return constant(std::move(y));
  const int64_t node =
      push({.op = op, .backward = std::move(backward), .marker = {}, .grad = {}, .bound = {}});
  return Value(*this, std::move(y), node);
}

Value Tape::record_deferred(const char* op, Tensor loss, Closure backward) {
  Value value = record(op, std::move(loss), std::move(backward));
  if (recording_) nodes_.back().deferred = true;
  return value;
}

void Tape::record_marker(const char* what, std::function<void()> fn) {
  if (recording_)
    push({.op = what, .backward = {}, .marker = std::move(fn), .grad = {}, .bound = {}});
}

void Tape::backward(const Value& loss, double scale) {
  if (loss.shape().numel() != 1) {
    throw Error(Code::kInvalidArgument,
                fmt::format("backward: the loss is {} but should be a scalar", loss.shape().str()));
  }
  Tensor dy = empty(loss.shape(), loss.dtype());
  kernels::fill(stream_, dy.view(), scale);
  backward(loss, std::move(dy));
}

void Tape::backward(const Value& y, Tensor dy) {
  if (!recording_)
    throw Error(Code::kFailedPrecondition, "backward: this tape does not record (evaluation)");
  const Slot slot = y.slot();
  if (slot.node < 0)
    throw Error(Code::kInvalidArgument,
                "backward: the value depends on nothing that wants a gradient");
  Backward seed(*this, {});
  seed.pass(slot, dy);
  run_backward();
}

void Tape::run_backward() {
  while (!nodes_.empty()) {
    // A closure may look at its inputs' nodes, all of which lie before it.
    Node& node = nodes_.back();
    if (node.marker) node.marker();
    if (node.bound && !node.written && !node.bound.accumulate)
      kernels::fill(stream_, node.bound.view, 0.0);
    if (node.backward && node.written) {
      Closure closure = std::move(node.backward);
      node.deferred = false;
      Backward context(*this, std::move(node.grad));
      closure(context);
    }
    nodes_.pop_back();
  }
}

Grad Backward::grad(const Slot& input) {
  if (input.node < 0) return {};
  Tape::Node& node = tape_.nodes_.at(static_cast<size_t>(input.node));
  if (node.bound)
    return {node.bound.view, std::exchange(node.written, true) || node.bound.accumulate};
  if (!node.written) {
    node.written = true;
    node.grad = tape_.empty(input.shape, input.dtype);
    return {node.grad.view(), false};
  }
  if (!node.grad.unique()) {
    // Shared by pass(): somebody else may still read it, so add to a copy.
    Tensor own = tape_.empty(input.shape, input.dtype);
    kernels::copy(stream(), node.grad.view(), {own.view(), false});
    node.grad = std::move(own);
  }
  return {node.grad.view(), true};
}

void Backward::pass(const Slot& input, const Tensor& dy) {
  if (input.node < 0) return;
  Tape::Node& node = tape_.nodes_.at(static_cast<size_t>(input.node));
  if (!node.bound && !node.written) {
    node.written = true;
    node.grad = dy.reshape(input.shape);
    return;
  }
  kernels::copy(stream(), dy.view().reshape(input.shape), grad(input));
}

}  // namespace zpp
