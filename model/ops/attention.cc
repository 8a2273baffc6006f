#include "model/ops/attention.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "kernels/attention.h"
#include "kernels/elementwise.h"
#include "kernels/rope.h"
#include "model/ops/shapes.h"

namespace zpp {
namespace {

/// Where queries, keys and values lie in a fused projection.
struct Fused {
  int64_t heads, kv_heads, width;

  View split(const View& fused) const {
    return fused.reshape({fused.dim(0), fused.dim(1), heads + 2 * kv_heads, width});
  }
  View q(const View& fused) const { return split(fused).slice(2, 0, heads); }
  View k(const View& fused) const { return split(fused).slice(2, heads, heads + kv_heads); }
  View v(const View& fused) const {
    return split(fused).slice(2, heads + kv_heads, heads + 2 * kv_heads);
  }
  View q_and_k(const View& fused) const { return split(fused).slice(2, 0, heads + kv_heads); }
};

Fused layout_of(const char* op, const Value& qkv, int64_t heads, int64_t kv_heads) {
  const Shape& shape = qkv.shape();
  const int64_t parts = heads + 2 * kv_heads;
  if (heads < 1 || kv_heads < 1 || heads % kv_heads != 0 || shape.rank() != 3 ||
      shape[2] % parts != 0) {
    throw Error(
        Code::kInvalidArgument,
        fmt::format("{}: qkv is {} but should be (B, T, ({} + 2 * {}) * head width), and the "
                    "key heads should divide the heads",
                    op, shape.str(), heads, kv_heads));
  }
  return {heads, kv_heads, shape[2] / parts};
}

/// `x` itself when the reference passed in is its only owner, else a copy.
Tensor own(const Tape& tape, const Tensor& x) {
  if (x.unique()) return x;
  Tensor y = tape.empty(x.shape(), x.dtype());
  kernels::copy(tape.stream(), x.view(), {y.view()});
  return y;
}

void turn(Stream& stream, const View& heads, const View& doc_start, const RopeSpec& spec,
          bool inverse) {
  kernels::rope(stream, {.x = heads,
                         .y = heads,
                         .doc_start = doc_start,
                         .rotary_dims = spec.rotary_dims,
                         .theta = spec.theta,
                         .inverse = inverse});
}

}  // namespace

Value rope(Value qkv, int64_t heads, int64_t kv_heads, const RopeSpec& spec) {
  const Fused fused = layout_of("rope", qkv, heads, kv_heads);
  Tape& tape = qkv.tape();
  // The argument is a copy: a buffer with one owner belongs to no caller and to no closure.
  Tensor y = own(tape, qkv.tensor());
  turn(tape.stream(), fused.q_and_k(y.view()), tape.doc_start(), spec, /*inverse=*/false);
  return tape.record("rope", std::move(y), [to = qkv.slot(), fused, spec](Backward& b) {
    const Tensor dqkv = own(b.tape(), b.dy_tensor());
    turn(b.stream(), fused.q_and_k(dqkv.view()), b.tape().doc_start(), spec, /*inverse=*/true);
    b.pass(to, dqkv);
  });
}

Value causal_attention(const Value& qkv, int64_t heads, int64_t kv_heads) {
  const Fused fused = layout_of("causal_attention", qkv, heads, kv_heads);
  Tape& tape = qkv.tape();
  const int64_t batch = qkv.shape()[0], tokens = qkv.shape()[1];
  const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(fused.width)));
  const Shape by_head = {batch, tokens, heads, fused.width};
  Tensor out = tape.empty({batch, tokens, heads * fused.width}, qkv.dtype());
  Tensor lse = tape.empty({batch, heads, tokens}, accumulator_of(qkv.dtype()));
  kernels::attention(tape.stream(), {.q = fused.q(qkv.view()),
                                     .k = fused.k(qkv.view()),
                                     .v = fused.v(qkv.view()),
                                     .out = out.view().reshape(by_head),
                                     .lse = lse.view(),
                                     .doc_start = tape.doc_start(),
                                     .scale = scale});
  return tape.record("causal_attention", out, [=](Backward& b) {
    const View x = qkv.view();
    const Shape keys = {batch, tokens, kv_heads, fused.width};
    // All of it is written, so that it can become the gradient without another pass.
    const Tensor dqkv = b.empty(qkv.shape(), qkv.dtype());
    const Tensor scratch =
        b.empty({kernels::attention_backward_scratch(b.stream(), by_head, keys)}, lse.dtype());
    kernels::attention_backward(b.stream(), {.dout = b.dy().reshape(by_head),
                                             .q = fused.q(x),
                                             .k = fused.k(x),
                                             .v = fused.v(x),
                                             .out = out.view().reshape(by_head),
                                             .lse = lse.view(),
                                             .doc_start = b.tape().doc_start(),
                                             .dq = fused.q(dqkv.view()),
                                             .dk = fused.k(dqkv.view()),
                                             .dv = fused.v(dqkv.view()),
                                             .scratch = scratch.view(),
                                             .scale = scale});
    b.pass(qkv.slot(), dqkv);
  });
}

}  // namespace zpp
