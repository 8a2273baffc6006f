#include "kernels/attention.h"

#include <fmt/format.h>

#include "kernels/cpu/attention.h"
#include "kernels/dispatch.h"

namespace zpp::kernels {

namespace {

constexpr std::string_view kForward = "attention";
constexpr std::string_view kBackward = "attention_backward";

HeadsView heads_view(const View& view) {
  if (!view) return {};
  return {view.data, view.stride(0), view.stride(1), view.stride(2)};
}

AttentionProblem sizes_of(std::string_view kernel, const Shape& q, const Shape& k) {
  check_that(q.rank() == 4, kernel, fmt::format("q is {} but should be (B, T, H, D)", q.str()));
  check_that(k.rank() == 4 && k[0] == q[0] && k[1] == q[1] && k[3] == q[3], kernel,
             fmt::format("k is {} but should be ({}, {}, KV, {})", k.str(), q[0], q[1], q[3]));
  check_that(k[2] > 0 ? q[2] % k[2] == 0 : q[2] == 0, kernel,
             fmt::format("{} key heads cannot be shared out to {} query heads", k[2], q[2]));
  AttentionProblem p;
  p.batch = q[0];
  p.tokens = q[1];
  p.heads = q[2];
  p.width = q[3];
  p.kv_heads = k[2];
  return p;
}

void check_operand(std::string_view kernel, const Arg& arg, const Shape& wanted, DType dtype) {
  check_shape(kernel, arg, wanted);
  check_dtype(kernel, arg, {dtype});
  check_that(arg.view.dense_rows(), kernel,
             fmt::format("{} has strides {} but its last dimension should be dense", arg.name,
                         arg.view.strides.str()));
}

/// Checks what both passes have in common and fills it in.
AttentionProblem problem_of(std::string_view kernel, const View& q, const View& k, const View& v,
                            const View& out, const View& lse, const View& doc_start, float scale) {
  AttentionProblem p = sizes_of(kernel, q.shape, k.shape);
  check_dtype(kernel, {"q", q}, {DType::kF32, DType::kBF16, DType::kF64});
  check_operand(kernel, {"q", q}, q.shape, q.dtype);
  check_operand(kernel, {"k", k}, k.shape, q.dtype);
  check_operand(kernel, {"v", v}, k.shape, q.dtype);
  check_operand(kernel, {"out", out}, q.shape, q.dtype);
  check_operand(kernel, {"lse", lse}, {p.batch, p.heads, p.tokens}, accumulator_of(q.dtype));
  p.q = heads_view(q);
  p.k = heads_view(k);
  p.v = heads_view(v);
  p.out = heads_view(out);
  p.lse = lse.data;
  p.lse_batch = lse.stride(0);
  p.lse_head = lse.stride(1);
  if (doc_start) {
    check_operand(kernel, {"doc_start", doc_start}, {p.batch, p.tokens}, DType::kI32);
    p.doc_start = doc_start.as<int32_t>();
    p.doc_batch = doc_start.stride(0);
  }
  p.scale = scale;
  p.dtype = q.dtype;
  return p;
}

}  // namespace

void attention(Stream& stream, const Attention& args) {
  check_args(kForward, stream,
             {{"q", args.q},
              {"k", args.k},
              {"v", args.v},
              {"out", args.out},
              {"lse", args.lse},
              {"doc_start", args.doc_start}});
  cpu::attention(
      cpu_stream(kForward, stream),
      problem_of(kForward, args.q, args.k, args.v, args.out, args.lse, args.doc_start, args.scale));
}

void attention_backward(Stream& stream, const AttentionBackward& args) {
  check_args(kBackward, stream,
             {{"dout", args.dout},
              {"q", args.q},
              {"k", args.k},
              {"v", args.v},
              {"out", args.out},
              {"lse", args.lse},
              {"doc_start", args.doc_start},
              {"dq", args.dq},
              {"dk", args.dk},
              {"dv", args.dv},
              {"scratch", args.scratch}});
  AttentionProblem p =
      problem_of(kBackward, args.q, args.k, args.v, args.out, args.lse, args.doc_start, args.scale);
  const Shape& q = args.q.shape;
  const Shape& k = args.k.shape;
  check_operand(kBackward, {"dout", args.dout}, q, p.dtype);
  check_operand(kBackward, {"dq", args.dq}, q, p.dtype);
  check_operand(kBackward, {"dk", args.dk}, k, p.dtype);
  check_operand(kBackward, {"dv", args.dv}, k, p.dtype);
  p.dout = heads_view(args.dout);
  p.dq = heads_view(args.dq);
  p.dk = heads_view(args.dk);
  p.dv = heads_view(args.dv);
  const int64_t wanted = attention_backward_scratch(stream, q, k);
  check_dtype(kBackward, {"scratch", args.scratch}, {args.lse.dtype});
  check_contiguous(kBackward, {{"scratch", args.scratch}});
  check_that(
      args.scratch.numel() >= wanted, kBackward,
      fmt::format("scratch has {} elements but should have {}", args.scratch.numel(), wanted));
  cpu::attention_backward(cpu_stream(kBackward, stream), p, args.scratch.data);
}

int64_t attention_backward_scratch(Stream& stream, const Shape& q, const Shape& k) {
  return cpu::attention_backward_scratch(cpu_stream(kBackward, stream), sizes_of(kBackward, q, k));
}

}  // namespace zpp::kernels
