#include "tools/bench/gemm_bench.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "kernels/elementwise.h"
#include "kernels/gemm.h"

namespace zpp {

namespace {

std::vector<LinearProduct> products_of(const GemmBench& options, int64_t width, int64_t tokens) {
  struct Layer {
    const char* name;
    int64_t in, out;
  };
  std::vector<Layer> layers = {{"qkv", width, 3 * width},
                               {"proj", width, width},
                               {"up", width, 4 * width},
                               {"down", 4 * width, width}};
  if (options.vocab > 0) layers.push_back({"head", width, options.vocab});
  std::vector<LinearProduct> products;
  for (const Layer& layer : layers) {
    for (const auto& [label, kind] : {std::pair{"y  =  x w^T", LinearProduct::kForward},
                                      std::pair{"dx =  dy w", LinearProduct::kInputGradient},
                                      std::pair{"dw += dy^T x", LinearProduct::kWeightGradient}}) {
      products.push_back(
          {fmt::format("{:<5} {}", layer.name, label), kind, tokens, layer.in, layer.out});
    }
  }
  return products;
}

Tensor filled(Runtime& runtime, const Shape& shape, DType dtype) {
  const Tensor tensor = runtime.tensor(shape, dtype);
  kernels::fill_normal(runtime.compute(), tensor.view(), 0.0f, 1.0f, {});
  return tensor;
}

double peak(Runtime& runtime, DType dtype) {
  const Tensor scratch = runtime.tensor({kernels::gemm_peak_scratch_bytes(dtype)}, DType::kU8);
  return kernels::measure_gemm_peak(runtime.compute(), dtype, scratch.view());
}

void check(const GemmBench& options) {
  for (const auto& sizes : {options.widths, options.tokens}) {
    for (int64_t size : sizes) {
      if (size >= 1) continue;
      throw Error(Code::kInvalidArgument,
                  fmt::format("bench gemm: sizes should be at least 1, found {}", size));
    }
  }
}

/// Shares of the machine's peak per dtype, in the order of the options.
std::vector<double> print_peaks(const GemmBench& options, Runtime& runtime, const Print& print) {
  Runtime::Options one_core;
  one_core.threads = 1;
  Runtime single(one_core);
  std::vector<double> peaks;
  for (DType dtype : options.dtypes) {
    const double per_core = peak(single, dtype);
    peaks.push_back(peak(runtime, dtype));
    print(fmt::format("peak {}: {:.1f} GFLOP/s on one core, {:.1f} on {} threads ({})",
                      to_string(dtype), per_core * 1e-9, peaks.back() * 1e-9,
                      runtime.workers().threads(), kernels::gemm_path(runtime.compute(), dtype)));
  }
  return peaks;
}

}  // namespace

double product_rate(Runtime& runtime, const LinearProduct& product, DType dtype, double seconds) {
  const Tensor x = filled(runtime, {product.tokens, product.in}, dtype);
  const Tensor y = filled(runtime, {product.tokens, product.out}, dtype);
  const Tensor w = filled(runtime, {product.out, product.in}, dtype);
  kernels::Gemm gemm;
  Tensor gradient;
  switch (product.kind) {
    case LinearProduct::kForward:
      gemm = {.a = x.view(), .b = w.view().transpose(0, 1), .bias = {}, .c = {y.view()}};
      break;
    case LinearProduct::kInputGradient:
      gemm = {.a = y.view(), .b = w.view(), .bias = {}, .c = {x.view()}};
      break;
    case LinearProduct::kWeightGradient:
      gradient = filled(runtime, {product.out, product.in}, accumulator_of(dtype));
      gemm = {
          .a = y.view().transpose(0, 1), .b = x.view(), .bias = {}, .c = {gradient.view(), true}};
      break;
  }
  const auto run = [&gemm](Stream& stream) { kernels::gemm(stream, gemm); };
  return product.flops() / best_seconds(runtime.compute(), run, seconds);
}

void bench_gemm(const GemmBench& options, const Print& print) {
  check(options);
  Runtime::Options with;
  with.threads = options.threads;
  Runtime runtime(with);
  const std::vector<double> peaks = print_peaks(options, runtime, print);
  std::string head = fmt::format("{:<20}{:>7}{:>7}{:>7}", "product", "tokens", "in", "out");
  for (DType dtype : options.dtypes) {
    head += fmt::format("{:>7} GFLOP/s{:>7}", to_string(dtype), "% peak");
  }
  print(head);
  for (int64_t width : options.widths) {
    for (int64_t tokens : options.tokens) {
      std::vector<double> log_sum(peaks.size(), 0.0);
      const std::vector<LinearProduct> products = products_of(options, width, tokens);
      for (const LinearProduct& product : products) {
        std::string line = fmt::format("{:<20}{:>7}{:>7}{:>7}", product.name, product.tokens,
                                       product.in, product.out);
        for (size_t i = 0; i < peaks.size(); ++i) {
          const double r = product_rate(runtime, product, options.dtypes[i], options.seconds);
          log_sum[i] += std::log(r);
          line += fmt::format("{:>15.1f}{:>7.0f}", r * 1e-9, 100 * r / peaks[i]);
        }
        print(line);
      }
      std::string line = fmt::format("{:<20}{:>7}{:>14}", "geometric mean", tokens, "");
      for (size_t i = 0; i < peaks.size(); ++i) {
        const double mean = std::exp(log_sum[i] / static_cast<double>(products.size()));
        line += fmt::format("{:>15.1f}{:>7.0f}", mean * 1e-9, 100 * mean / peaks[i]);
      }
      print(line);
    }
  }
}

}  // namespace zpp
