#include "model/nn/unit.h"

namespace zpp {

Value Unit::operator()(const Value& x) {
  Tape& tape = x.tape();
  if (!tape.recording()) {
    tape.hooks().before_forward(parameters_);
    Value y = forward(x);
    tape.hooks().after_forward(parameters_);
    return y;
  }
  return tape.recompute() ? run_recomputed(x) : run_recorded(x);
}

Value Unit::run_recorded(const Value& x) {
  Tape& tape = x.tape();
  tape.hooks().before_forward(parameters_);
  // Markers around the unit's nodes, met in reverse by the backward pass.
  tape.record_marker("unit begin", [this, &tape] { tape.hooks().after_backward(parameters_); });
  Value y = forward(x);
  tape.record_marker("unit end", [this, &tape] { tape.hooks().before_backward(parameters_); });
  tape.hooks().after_forward(parameters_);
  return y;
}

Value Unit::run_recomputed(const Value& x) {
  Tape& tape = x.tape();
  const uint64_t position = tape.rng_position();
  tape.hooks().before_forward(parameters_);
  Tape once(tape, /*recording=*/false, position);
  Tensor y = forward(once.constant(x.tensor())).tensor();
  tape.skip_rng_to(once.rng_position());
  tape.hooks().after_forward(parameters_);

  tape.record_marker("unit begin", [this, &tape] { tape.hooks().after_backward(parameters_); });
  Value result = tape.record("recompute", std::move(y), [this, x, position](Backward& b) {
    Tape again(b.tape(), /*recording=*/true, position);
    const Grad dx = b.grad(x.slot());
    const Value input = again.leaf(x.tensor(), dx);
    const Value output = forward(input);
    again.backward(output, b.dy_tensor());
  });
  tape.record_marker("unit end", [this, &tape] { tape.hooks().before_backward(parameters_); });
  return result;
}

}  // namespace zpp
