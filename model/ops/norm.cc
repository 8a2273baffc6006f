#include "model/ops/norm.h"

#include <fmt/format.h>

#include <utility>

#include "kernels/norm.h"
#include "model/ops/shapes.h"

namespace zpp {
namespace {

void check(const char* op, const Value& x, const Parameter& p) {
  if (x.shape().rank() < 1 || p.shape() != Shape{x.shape()[-1]}) {
    throw Error(Code::kInvalidArgument, fmt::format("{}: x is {} but the parameter is {} [{}]", op,
                                                    x.shape().str(), p.shape().str(), p.name()));
  }
}

Tensor per_row(Tape& tape, const View& rows) {
  return tape.empty({rows.dim(0)}, accumulator_of(rows.dtype));
}

Tensor backward_scratch(Backward& b, const View& rows) {
  return b.empty({kernels::norm_backward_scratch(rows.dim(0), rows.dim(1))},
                 accumulator_of(rows.dtype));
}

}  // namespace

Value rms_norm(const Value& x, Parameter& gamma, float eps) {
  check("rms_norm", x, gamma);
  Tape& tape = x.tape();
  const View rows = rows_of(x.view());
  Tensor y = tape.empty(x.shape(), x.dtype());
  Tensor rstd = per_row(tape, rows);
  kernels::rms_norm(
      tape.stream(),
      {.x = rows, .gamma = gamma.view(), .y = rows_of(y.view()), .rstd = rstd.view(), .eps = eps});
  return tape.record("rms_norm", std::move(y), [x, &gamma, rstd](Backward& b) {
    const View saved = rows_of(x.view());
    const Tensor scratch = backward_scratch(b, saved);
    kernels::rms_norm_backward(b.stream(), {.dy = rows_of(b.dy()),
                                            .x = saved,
                                            .gamma = gamma.view(),
                                            .rstd = rstd.view(),
                                            .dx = rows_of(b.grad(x.slot())),
                                            .dgamma = gamma.grad(),
                                            .scratch = scratch.view()});
  });
}

Value layer_norm(const Value& x, Parameter& gamma, Parameter* beta, float eps) {
  check("layer_norm", x, gamma);
  if (beta != nullptr) check("layer_norm", x, *beta);
  Tape& tape = x.tape();
  const View rows = rows_of(x.view());
  Tensor y = tape.empty(x.shape(), x.dtype());
  Tensor mean = per_row(tape, rows);
  Tensor rstd = per_row(tape, rows);
  kernels::layer_norm(tape.stream(), {.x = rows,
                                      .gamma = gamma.view(),
                                      .beta = beta != nullptr ? beta->view() : View{},
                                      .y = rows_of(y.view()),
                                      .mean = mean.view(),
                                      .rstd = rstd.view(),
                                      .eps = eps});
  return tape.record("layer_norm", std::move(y), [x, &gamma, beta, mean, rstd](Backward& b) {
    const View saved = rows_of(x.view());
    const Tensor scratch = backward_scratch(b, saved);
    kernels::layer_norm_backward(b.stream(), {.dy = rows_of(b.dy()),
                                              .x = saved,
                                              .gamma = gamma.view(),
                                              .mean = mean.view(),
                                              .rstd = rstd.view(),
                                              .dx = rows_of(b.grad(x.slot())),
                                              .dgamma = gamma.grad(),
                                              .dbeta = beta != nullptr ? beta->grad() : Grad{},
                                              .scratch = scratch.view()});
  });
}

}  // namespace zpp
