#include "tools/bench/kernel_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "core/rng.h"
#include "kernels/adamw.h"
#include "kernels/attention.h"
#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/norm.h"
#include "kernels/reduce.h"
#include "kernels/rope.h"
#include "tools/bench/quantize_bench.h"

namespace zpp {

namespace {

/// Arithmetic of a kernel for one vector of f32 and as many elements of bf16, loads and stores not
/// counted; the comments in kernels/cpu/*_simd.cc say what it is made of.
struct Arithmetic {
  double instructions = 0;
  double products = 0;  // multiplications and fused ones among them
  double quotients = 0;
};
struct Counts {
  int64_t elements = 0;
  Arithmetic f32, bf16;
};

/// Cycles that a processor with two multipliers and four pipes for vectors takes at least, as AMD
/// Zen 3 and later; a vector is divided in 5.
double cycles(const Arithmetic& a) {
  return std::max({a.instructions / 4, a.products / 2, a.quotients * 5});
}

/// What a machine can do.
struct Limits {
  double bytes;    // a second, read and written, by memcpy
  double vectors;  // cycles a second times vectors of f32, over all threads
};

/// Makes the arguments of kernels of one dtype and reports a line for each kernel.
class Bench {
 public:
  Bench(const KernelBench& options, Runtime& runtime, DType dtype, const Limits& limits,
        const Print& print)
      : o_(options), runtime_(runtime), dtype_(dtype), limits_(limits), print_(print) {}

  void norms();
  void pointwise();
  void embeddings();
  void losses();
  void positions();
  void reductions();
  void optimizer();
  void attentions();

 private:
  static constexpr DType kAccum = DType::kF32;

  Tensor make(const Shape& shape, DType dtype) {
    const Tensor t = runtime_.tensor(shape, dtype);
    if (dtype == DType::kI32) {
      kernels::fill(runtime_.compute(), t.view(), 0.0);
    } else {
      kernels::fill_normal(runtime_.compute(), t.view(), 0.0f, 1.0f, {});
    }
    return t;
  }
  Tensor make(const Shape& shape) { return make(shape, dtype_); }
  /// Token ids, spread over the vocabulary.
  Tensor ids(const Shape& shape) {
    std::vector<int32_t> values(static_cast<size_t>(shape.numel()));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<int32_t>(mix_hash(1, i) % static_cast<uint64_t>(o_.vocab));
    }
    const Tensor t = runtime_.tensor(shape, DType::kI32);
    copy_from_host(runtime_.compute(), values, t.view());
    return t;
  }

  /// `bytes`: what the kernel has to read and write. `flops`: 0 where they do not count.
  void report(const std::string& name, int64_t bytes, const Counts& counts, double flops,
              const std::function<void(Stream&)>& run) {
    const double seconds = best_seconds(runtime_.compute(), run, o_.seconds);
    const double rate = static_cast<double>(bytes) / seconds;
    const double memory = static_cast<double>(bytes) / limits_.bytes;
    const double compute = cycles(dtype_ == DType::kBF16 ? counts.bf16 : counts.f32) *
                           static_cast<double>(counts.elements) / limits_.vectors;
    print_(fmt::format(
        "{:<26}{:>6}{:>11.3f}{:>9.1f}{:>10.0f}{:>9}{:>9}{:>10}", name, to_string(dtype_),
        seconds * 1e3, rate * 1e-9, 100 * rate / limits_.bytes,
        flops > 0          ? "-"
        : compute > memory ? "compute"
                           : "memory",
        flops > 0 ? "-" : fmt::format("{:.0f}", 100 * std::max(compute, memory) / seconds),
        flops > 0 ? fmt::format("{:.1f}", flops / seconds * 1e-9) : "-"));
  }
  void report(const std::string& name, int64_t bytes, const Counts& counts,
              const std::function<void(Stream&)>& run) {
    report(name, bytes, counts, 0, run);
  }
  int64_t size(int64_t elements) const { return elements * size_of(dtype_); }

  const KernelBench& o_;
  Runtime& runtime_;
  const DType dtype_;
  const Limits limits_;
  const Print& print_;
};

void Bench::norms() {
  const int64_t n = o_.rows * o_.width;
  const Tensor x = make({o_.rows, o_.width}), y = make({o_.rows, o_.width});
  const Tensor dx = make({o_.rows, o_.width}), gamma = make({o_.width}), beta = make({o_.width});
  const Tensor mean = make({o_.rows}, kAccum), rstd = make({o_.rows}, kAccum);
  const Tensor dgamma = make({o_.width}, kAccum), dbeta = make({o_.width}, kAccum);
  const Tensor scratch = make({kernels::norm_backward_scratch(o_.rows, o_.width)}, kAccum);
  report("layer_norm", size(2 * n), {n, {6, 3}, {15.5, 3}}, [&](Stream& s) {
    kernels::layer_norm(s, {.x = x.view(),
                            .gamma = gamma.view(),
                            .beta = beta.view(),
                            .y = y.view(),
                            .mean = mean.view(),
                            .rstd = rstd.view(),
                            .eps = 1e-5f});
  });
  report("layer_norm_backward", size(3 * n), {n, {11, 7}, {25.5, 7}}, [&](Stream& s) {
    kernels::layer_norm_backward(s, {.dy = y.view(),
                                     .x = x.view(),
                                     .gamma = gamma.view(),
                                     .mean = mean.view(),
                                     .rstd = rstd.view(),
                                     .dx = {dx.view()},
                                     .dgamma = {dgamma.view(), true},
                                     .dbeta = {dbeta.view(), true},
                                     .scratch = scratch.view()});
  });
  report("rms_norm", size(2 * n), {n, {3, 3}, {11.5, 3}}, [&](Stream& s) {
    kernels::rms_norm(
        s,
        {.x = x.view(), .gamma = gamma.view(), .y = y.view(), .rstd = rstd.view(), .eps = 1e-5f});
  });
  report("rms_norm_backward", size(3 * n), {n, {9, 7}, {23.5, 7}}, [&](Stream& s) {
    kernels::rms_norm_backward(s, {.dy = y.view(),
                                   .x = x.view(),
                                   .gamma = gamma.view(),
                                   .rstd = rstd.view(),
                                   .dx = {dx.view()},
                                   .dgamma = {dgamma.view(), true},
                                   .scratch = scratch.view()});
  });
}

void Bench::pointwise() {
  using kernels::Activation;
  const int64_t n = o_.rows * 4 * o_.width;
  const Tensor x = make({o_.rows, 4 * o_.width}), y = make({o_.rows, 4 * o_.width});
  const Tensor z = make({o_.rows, 4 * o_.width}), half = make({o_.rows, 2 * o_.width});
  const Tensor f32 = make({o_.rows, 4 * o_.width}, DType::kF32);
  report("add", size(3 * n), {n, {1, 0}, {8.5, 0}},
         [&](Stream& s) { kernels::add(s, x.view(), y.view(), z.view()); });
  report("copy from f32", size(n) + 4 * n, {n, {1, 1}, {9, 1}},
         [&](Stream& s) { kernels::copy(s, f32.view(), {z.view()}); });
  report("fill", size(n), {}, [&](Stream& s) { kernels::fill(s, z.view(), 0.0); });
  struct Gelu {
    const char* name;
    Activation kind;
    Counts forward, backward;
  };
  for (const Gelu& gelu : {Gelu{"gelu_tanh",
                                Activation::kGeluTanh,
                                {n, {16, 9, 1}, {21.5, 8, 1}},
                                {n, {22, 14, 1}, {28.5, 13, 1}}},
                           Gelu{"gelu_erf",
                                Activation::kGeluErf,
                                {n, {27, 19, 1}, {30.5, 16, 1}},
                                {n, {30, 21, 1}, {34.5, 18, 1}}}}) {
    report(gelu.name, size(2 * n), gelu.forward,
           [&](Stream& s) { kernels::activation(s, gelu.kind, x.view(), y.view()); });
    report(fmt::format("{}_backward", gelu.name), size(3 * n), gelu.backward, [&](Stream& s) {
      kernels::activation_backward(s, gelu.kind, y.view(), x.view(), {z.view()});
    });
  }
  report("swiglu", size(n + n / 2), {n / 2, {15, 8, 1}, {21.5, 7, 1}},
         [&](Stream& s) { kernels::swiglu(s, x.view(), half.view()); });
  report("swiglu_backward", size(2 * n + n / 2), {n / 2, {20, 12, 1}, {33, 11, 1}},
         [&](Stream& s) { kernels::swiglu_backward(s, half.view(), x.view(), {z.view()}); });
  report("dropout", size(2 * n), {n, {49, 11}, {53.5, 11}}, [&](Stream& s) {
    kernels::dropout(s, {.x = x.view(), .y = {y.view()}, .p = 0.1f, .key = {}});
  });
  report("fill_normal", size(n), {n, {77, 31}, {80.5, 31}},
         [&](Stream& s) { kernels::fill_normal(s, z.view(), 0.0f, 1.0f, {}); });
}

void Bench::embeddings() {
  const int64_t n = o_.rows * o_.width;
  const Tensor tokens = ids({1, o_.rows}), table = make({o_.vocab, o_.width});
  const Tensor places = make({o_.rows, o_.width}), y = make({1, o_.rows, o_.width});
  const Tensor dtable = make({o_.vocab, o_.width}, kAccum);
  report("embedding", size(3 * n), {n, {1, 0}, {8.5, 0}}, [&](Stream& s) {
    kernels::embedding(s, {.tokens = tokens.view(),
                           .table = table.view(),
                           .positions = places.view(),
                           .doc_start = {},
                           .y = y.view()});
  });
  report("embedding_backward", size(n) + 8 * n, {n, {1, 0}, {3, 0}}, [&](Stream& s) {
    kernels::embedding_backward(s, {.dy = y.view(),
                                    .tokens = tokens.view(),
                                    .doc_start = {},
                                    .dtable = {dtable.view(), true},
                                    .dpositions = {}});
  });
}

void Bench::losses() {
  constexpr int64_t kChunk = 512;  // rows of logits alive at a time
  const int64_t n = kChunk * o_.vocab;
  const Tensor logits = make({kChunk, o_.vocab}, kAccum), dlogits = make({kChunk, o_.vocab});
  const Tensor targets = ids({kChunk}), loss = make({1}, kAccum), rows = make({kChunk}, kAccum);
  report("cross_entropy", 4 * n + size(n), {n, {26, 16}, {33, 15}}, [&](Stream& s) {
    kernels::cross_entropy(s, {.logits = logits.view(),
                               .targets = targets.view(),
                               .loss = loss.view(),
                               .dy = {},
                               .dlogits = dlogits.view(),
                               .row_loss = rows.view(),
                               .loss_scale = 1.0,
                               .grad_scale = 1.0});
  });
}

void Bench::positions() {
  const int64_t n = o_.rows * o_.width, d = o_.width / o_.heads;
  const Tensor x = make({o_.rows / o_.context, o_.context, o_.heads, d});
  const Tensor y = make({o_.rows / o_.context, o_.context, o_.heads, d});
  report("rope", size(2 * n), {n, {2, 2}, {11.5, 2}}, [&](Stream& s) {
    kernels::rope(s, {.x = x.view(),
                      .y = y.view(),
                      .doc_start = {},
                      .rotary_dims = d / 2 * 2,
                      .theta = 10000.0});
  });
}

void Bench::reductions() {
  const int64_t n = o_.rows * 4 * o_.width;
  const Tensor x = make({o_.rows, 4 * o_.width}), sum = make({1}, DType::kF64);
  const Tensor cols = make({4 * o_.width}, kAccum), flag = make({1}, DType::kI32);
  report("sum_squares", size(n), {n, {5, 4}, {7, 4}},
         [&](Stream& s) { kernels::sum_squares(s, x.view(), {sum.view()}); });
  report("sum_rows", size(n), {n, {2.5, 0}, {4.5, 0}}, [&](Stream& s) {
    kernels::sum_rows(s, x.view(), {cols.view(), true});
  });
  report("any_nonfinite", size(n), {n, {1, 1}, {3, 1}},
         [&](Stream& s) { kernels::any_nonfinite(s, x.view(), flag.view()); });
}

void Bench::optimizer() {
  const int64_t n = 4 * o_.rows * o_.width;
  const Tensor master = make({n}, kAccum), m = make({n}, kAccum), v = make({n}, kAccum);
  const Tensor grad = make({n}, kAccum),
               guard = runtime_.tensor({kernels::kGuardSize}, DType::kF64);
  const Tensor weights = dtype_ == DType::kBF16 ? make({n}) : Tensor();
  kernels::fill(runtime_.compute(), v.view(), 1.0);
  kernels::fill(runtime_.compute(), guard.view(), 0.0);
  copy_from_host(runtime_.compute(), std::vector<double>{1.0, 1.0, 0.0, 1.0}, guard.view());
  report("adamw", 28 * n + (weights ? size(n) : 0), {n, {14, 9, 2}, {22, 9, 2}}, [&](Stream& s) {
    kernels::adamw(s, {.master = master.view(),
                       .m = m.view(),
                       .v = v.view(),
                       .grad = grad.view(),
                       .weights = weights.view(),
                       .guard = guard.view(),
                       .lr = 1e-4,
                       .beta1 = 0.9,
                       .beta2 = 0.95,
                       .eps = 1e-8,
                       .weight_decay = 0.1});
  });
}

void Bench::attentions() {
  const int64_t d = o_.width / o_.heads, batch = o_.rows / o_.context, n = o_.rows * o_.width;
  const Tensor qkv = make({batch, o_.context, 3 * o_.heads, d});
  const Tensor dqkv = make({batch, o_.context, 3 * o_.heads, d});
  const Tensor out = make({batch, o_.context, o_.heads, d}), dout = make(out.shape());
  const Tensor lse = make({batch, o_.heads, o_.context}, kAccum);
  const auto part = [&](const Tensor& t, int64_t i) {
    return t.slice(2, i * o_.heads, (i + 1) * o_.heads).view();
  };
  const View q = part(qkv, 0), k = part(qkv, 1), v = part(qkv, 2);
  const Tensor scratch =
      make({kernels::attention_backward_scratch(runtime_.compute(), q.shape, k.shape)}, kAccum);
  const float scale = 1.0f / std::sqrt(static_cast<float>(d));
  // Two products forward and five backward over the visible half of the scores.
  const double flops = 2.0 * static_cast<double>(n) * static_cast<double>(o_.context);
  report("attention", size(4 * n), {}, flops, [&](Stream& s) {
    kernels::attention(s, {.q = q,
                           .k = k,
                           .v = v,
                           .out = out.view(),
                           .lse = lse.view(),
                           .doc_start = {},
                           .scale = scale});
  });
  report("attention_backward", size(8 * n), {}, 2.5 * flops, [&](Stream& s) {
    kernels::attention_backward(s, {.dout = dout.view(),
                                    .q = q,
                                    .k = k,
                                    .v = v,
                                    .out = out.view(),
                                    .lse = lse.view(),
                                    .doc_start = {},
                                    .dq = part(dqkv, 0),
                                    .dk = part(dqkv, 1),
                                    .dv = part(dqkv, 2),
                                    .scratch = scratch.view(),
                                    .scale = scale});
  });
}

void check(const KernelBench& o) {
  const auto refuse = [](const std::string& text) {
    throw Error(Code::kInvalidArgument, "bench kernels: " + text);
  };
  for (int64_t size : {o.rows, o.width, o.vocab, o.context, o.heads}) {
    if (size < 1) refuse(fmt::format("sizes should be at least 1, found {}", size));
  }
  if (o.width % o.heads != 0) {
    refuse(fmt::format("{} heads do not divide a width of {}", o.heads, o.width));
  }
  if (o.rows % o.context != 0) {
    refuse(fmt::format("a context of {} does not divide {} rows", o.context, o.rows));
  }
}

}  // namespace

void bench_kernels(const KernelBench& options, const Print& print) {
  check(options);
  Runtime::Options with;
  with.threads = options.threads;
  Runtime runtime(with);
  const double clock = clock_rate();
  const int threads = runtime.workers().threads();
  const int lanes = with.isa == Isa::kAvx512 ? 16 : 8;
  const Limits limits{memcpy_bandwidth(runtime, options.seconds), clock * threads * lanes};
  print(
      fmt::format("memcpy: {:.1f} GB/s, read and written, on {} threads of {:.2f} GHz; kernels for "
                  "{}",
                  limits.bytes * 1e-9, threads, clock * 1e-9, to_string(with.isa)));
  print(fmt::format("{:<26}{:>6}{:>11}{:>9}{:>10}{:>9}{:>9}{:>10}", "kernel", "dtype", "ms", "GB/s",
                    "% memcpy", "bound", "% bound", "GFLOP/s"));
  for (DType dtype : options.dtypes) {
    Bench bench(options, runtime, dtype, limits, print);
    bench.norms();
    bench.pointwise();
    bench.embeddings();
    bench.losses();
    bench.positions();
    bench.reductions();
    bench.optimizer();
    bench.attentions();
  }
  bench_quantize(runtime, options.dtypes, options.seconds, print);
}

}  // namespace zpp
