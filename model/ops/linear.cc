#include "model/ops/linear.h"

#include <fmt/format.h>

#include <utility>

#include "kernels/elementwise.h"
#include "kernels/gemm.h"
#include "kernels/reduce.h"
#include "model/ops/shapes.h"

namespace zpp {
namespace {

void check(const Value& x, const Parameter& w, const Parameter* bias) {
  const Shape& shape = x.shape();
  if (w.shape().rank() != 2) {
    throw Error(Code::kInvalidArgument, fmt::format("linear: w is {} but should be (out, in) [{}]",
                                                    w.shape().str(), w.name()));
  }
  if (shape.rank() < 1 || shape[-1] != w.shape()[1]) {
    throw Error(Code::kInvalidArgument, fmt::format("linear: x is {} but w wants {} inputs [{}]",
                                                    shape.str(), w.shape()[1], w.name()));
  }
  if (bias != nullptr && bias->shape() != Shape{w.shape()[0]}) {
    throw Error(Code::kInvalidArgument,
                fmt::format("linear: bias is {} but w has {} outputs [{}]", bias->shape().str(),
                            w.shape()[0], bias->name()));
  }
}

/// dy in the dtype that products with x want.
Tensor like_input(Backward& b, DType dtype) {
  if (b.dy().dtype == dtype) return b.dy_tensor();
  Tensor dy = b.empty(b.dy().shape, dtype);
  kernels::copy(b.stream(), b.dy(), {dy.view()});
  return dy;
}

Value apply(const Value& x, Parameter& w, Parameter* bias, DType result) {
  check(x, w, bias);
  Tape& tape = x.tape();
  Shape shape = x.shape();
  shape.set(-1, w.shape()[0]);
  Tensor y = tape.empty(shape, result);
  kernels::gemm(tape.stream(), {.a = rows_of(x.view()),
                                .b = w.view().transpose(0, 1),
                                .bias = bias != nullptr ? bias->view() : View{},
                                .c = {rows_of(y.view())}});
  return tape.record("linear", std::move(y), [x, &w, bias](Backward& b) {
    const Tensor dy_tensor = like_input(b, x.dtype());
    const View dy = rows_of(dy_tensor.view());
    if (const Grad dx = rows_of(b.grad(x.slot()))) {
      kernels::gemm(b.stream(), {.a = dy, .b = w.view(), .bias = {}, .c = dx});
    }
    if (const Grad dw = w.grad()) {
      kernels::gemm(b.stream(),
                    {.a = dy.transpose(0, 1), .b = rows_of(x.view()), .bias = {}, .c = dw});
    }
    if (const Grad dbias = bias != nullptr ? bias->grad() : Grad{}) {
      kernels::sum_rows(b.stream(), dy, dbias);
    }
  });
}

}  // namespace

Value linear(const Value& x, Parameter& w, Parameter* bias) { return apply(x, w, bias, x.dtype()); }

Value linear_f32(const Value& x, Parameter& w) {
  return apply(x, w, nullptr, accumulator_of(x.dtype()));
}

}  // namespace zpp
