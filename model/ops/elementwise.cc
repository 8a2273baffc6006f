#include "model/ops/elementwise.h"

#include <fmt/format.h>

#include <utility>

#include "model/ops/shapes.h"

namespace zpp {

Value gelu(const Value& x, Activation kind) {
  Tape& tape = x.tape();
  Tensor y = tape.empty(x.shape(), x.dtype());
  kernels::activation(tape.stream(), kind, x.view(), y.view());
  return tape.record("gelu", std::move(y), [x, kind](Backward& b) {
    if (const Grad dx = b.grad(x.slot())) {
      kernels::activation_backward(b.stream(), kind, b.dy(), x.view(), dx);
    }
  });
}

Value swiglu(const Value& x) {
  Shape shape = x.shape();
  if (shape.rank() < 1 || shape[-1] % 2 != 0) {
    throw Error(
        Code::kInvalidArgument,
        fmt::format("swiglu: x is {} but its last dimension should hold [gate | up]", shape.str()));
  }
  shape.set(-1, shape[-1] / 2);
  Tape& tape = x.tape();
  Tensor y = tape.empty(shape, x.dtype());
  kernels::swiglu(tape.stream(), rows_of(x.view()), rows_of(y.view()));
  return tape.record("swiglu", std::move(y), [x](Backward& b) {
    if (const Grad dx = rows_of(b.grad(x.slot()))) {
      kernels::swiglu_backward(b.stream(), rows_of(b.dy()), rows_of(x.view()), dx);
    }
  });
}

Value add(Value a, Value b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) {
    throw Error(Code::kInvalidArgument,
                fmt::format("add: a is {} {} but b is {} {}", a.shape().str(), to_string(a.dtype()),
                            b.shape().str(), to_string(b.dtype())));
  }
  Tape& tape = a.tape();
  const Slot to_a = a.slot(), to_b = b.slot();
  // Both arguments are copies: a buffer with one owner belongs to no caller and to no closure.
  if (b.tensor().unique()) std::swap(a, b);
  Tensor y = a.tensor().unique() ? a.tensor() : tape.empty(a.shape(), a.dtype());
  kernels::add(tape.stream(), a.view(), b.view(), y.view());
  return tape.record("add", std::move(y), [to_a, to_b](Backward& back) {
    back.pass(to_a, back.dy_tensor());
    back.pass(to_b, back.dy_tensor());
  });
}

Value dropout(const Value& x, double p) {
  if (!(p >= 0.0 && p < 1.0)) {
    throw Error(Code::kInvalidArgument, fmt::format("dropout: p is {} but should be in [0, 1)", p));
  }
  Tape& tape = x.tape();
  if (!tape.training() || p == 0.0) return x;
  const RngKey key = tape.next_rng("dropout", x.shape().numel());
  const float rate = static_cast<float>(p);
  Tensor y = tape.empty(x.shape(), x.dtype());
  kernels::dropout(tape.stream(), {.x = x.view(), .y = {y.view()}, .p = rate, .key = key});
  return tape.record("dropout", std::move(y), [to = x.slot(), rate, key](Backward& b) {
    if (const Grad dx = b.grad(to)) {
      kernels::dropout(b.stream(), {.x = b.dy(), .y = dx, .p = rate, .key = key});
    }
  });
}

}  // namespace zpp
