#include "model/ops/embedding.h"

#include <fmt/format.h>

#include <utility>

#include "kernels/elementwise.h"
#include "kernels/embedding.h"

namespace zpp {
namespace {

void check(const Tensor& tokens, const Parameter& table, const Parameter* positions) {
  if (tokens.shape().rank() != 2 || tokens.dtype() != DType::kI32) {
    throw Error(Code::kInvalidArgument,
                fmt::format("embedding: tokens are {} {} but should be (B, T) i32 [{}]",
                            tokens.shape().str(), to_string(tokens.dtype()), table.name()));
  }
  if (table.shape().rank() != 2) {
    throw Error(Code::kInvalidArgument,
                fmt::format("embedding: table is {} but should be (V, C) [{}]", table.shape().str(),
                            table.name()));
  }
  if (positions == nullptr) return;
  const Shape& shape = positions->shape();
  if (shape.rank() != 2 || shape[1] != table.shape()[1] || shape[0] < tokens.shape()[1]) {
    throw Error(
        Code::kInvalidArgument,
        fmt::format(
            "embedding: positions are {} but should be ({} or more, {}); is the batch longer than "
            "the model's context? [{}]",
            shape.str(), tokens.shape()[1], table.shape()[1], positions->name()));
  }
}

}  // namespace

Value embedding(Tape& tape, const Tensor& tokens, Parameter& table, Parameter* positions) {
  check(tokens, table, positions);
  Tensor y =
      tape.empty({tokens.shape()[0], tokens.shape()[1], table.shape()[1]}, table.unit().dtype());
  kernels::embedding(tape.stream(), {.tokens = tokens.view(),
                                     .table = table.view(),
                                     .positions = positions != nullptr ? positions->view() : View{},
                                     .doc_start = tape.doc_start(),
                                     .y = y.view()});
  return tape.record("embedding", std::move(y), [tokens, &table, positions](Backward& b) {
    const Grad dtable = table.grad();
    const Grad dpositions = positions != nullptr ? positions->grad() : Grad{};
    if (!dtable && !dpositions) return;
    kernels::embedding_backward(b.stream(), {.dy = b.dy(),
                                             .tokens = tokens.view(),
                                             .doc_start = b.tape().doc_start(),
                                             .dtable = dtable,
                                             .dpositions = dpositions});
  });
}

Value last_position(const Value& x) {
  const Shape& shape = x.shape();
  if (shape.rank() != 3 || shape[1] < 1) {
    throw Error(
        Code::kInvalidArgument,
        fmt::format("last_position: x is {} but should be (B, T, C) with T > 0", shape.str()));
  }
  Tape& tape = x.tape();
  Tensor y = tape.empty({shape[0], shape[2]}, x.dtype());
  const int64_t last = shape[1] - 1;
  for (int64_t row = 0; row < shape[0]; ++row) {
    kernels::copy(tape.stream(), x.view().select(0, row).select(0, last),
                  {y.view().select(0, row)});
  }
  return tape.record("last_position", std::move(y), [to = x.slot(), last](Backward& b) {
    const Grad dx = b.grad(to);
    if (!dx) return;
    if (!dx.accumulate) kernels::fill(b.stream(), dx.view, 0.0);
    for (int64_t row = 0; row < to.shape[0]; ++row) {
      kernels::copy(b.stream(), b.dy().select(0, row),
                    {dx.view.select(0, row).select(0, last), true});
    }
  });
}

}  // namespace zpp
