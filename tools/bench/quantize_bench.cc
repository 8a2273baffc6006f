#include "tools/bench/quantize_bench.h"

#include <fmt/format.h>

#include <cstring>
#include <string>

#include "kernels/elementwise.h"
#include "kernels/quantize.h"

namespace zpp {
namespace {

using kernels::Coded;
using kernels::QuantFormat;

constexpr int kSources = 4;  // of sums

/// Coding values of one dtype in one format.
class Bench {
 public:
  Bench(Runtime& runtime, DType dtype, const QuantFormat& format, int64_t bytes, double seconds,
        double memcpy_rate, const Print& print)
      : runtime_(runtime),
        dtype_(dtype),
        format_(format),
        bytes_(bytes),
        n_(bytes / size_of(dtype)),
        values_(runtime.tensor({n_}, dtype)),
        codes_(runtime.tensor({format.code_bytes(n_)}, DType::kU8)),
        scales_(runtime.tensor({format.scales(n_)}, DType::kF32)),
        recoded_(runtime.tensor({n_ / kSources}, DType::kU8)),
        rescales_(runtime.tensor({n_ / kSources / 32}, DType::kF32)),
        seconds_(seconds),
        memcpy_rate_(memcpy_rate),
        print_(print) {
    kernels::fill_normal(runtime.compute(), values_.view(), 0.0f, 1.0f, {});
    runtime.compute().synchronize();
  }

  void run() const {
    const kernels::Quantize encode{.from = values_.view().data,
                                   .dtype = dtype_,
                                   .n = n_,
                                   .format = format_,
                                   .codes = codes(),
                                   .scales = scales()};
    report("quantize", coded_bytes(n_) + bytes_, [&] { quantize(isa(), encode); });
    kernels::Quantize other = encode;
    other.hadamard = true;
    report("quantize hadamard", coded_bytes(n_) + bytes_, [&] { quantize(isa(), other); });
    const RngKey key{1, 2, 3};
    other = encode;
    other.rounding = &key;
    report("quantize stochastic", coded_bytes(n_) + bytes_, [&] { quantize(isa(), other); });
    decode();
  }

 private:
  void decode() const {
    const Coded all{codes(), scales()};
    kernels::Dequantize args{.sources = &all,
                             .n = n_,
                             .format = format_,
                             .out = values_.view().data,
                             .out_dtype = dtype_};
    report("dequantize", coded_bytes(n_) + bytes_, [&] { dequantize(isa(), args); });
    args.hadamard = true;
    report("dequantize hadamard", coded_bytes(n_) + bytes_, [&] { dequantize(isa(), args); });
    const int64_t n = n_ / kSources;
    std::vector<Coded> sources;
    for (int k = 0; k < kSources; ++k) {
      sources.push_back({codes() + k * format_.code_bytes(n), scales() + k * format_.scales(n)});
    }
    args.hadamard = false;
    args.sources = sources.data();
    args.count = kSources;
    args.n = n;
    report(fmt::format("dequantize {}", kSources), coded_bytes(n_) + bytes_ / kSources,
           [&] { dequantize(isa(), args); });
    const kernels::Requantize again{.sources = sources.data(),
                                    .count = kSources,
                                    .n = n,
                                    .format = format_,
                                    .to_format = format_,
                                    .codes = as_bytes(recoded_),
                                    .scales = rescales_.view().as<float>()};
    report(fmt::format("requantize {}", kSources), coded_bytes(n_) + coded_bytes(n),
           [&] { requantize(isa(), again); });
  }

  void report(const std::string& name, int64_t bytes, const std::function<void()>& work) const {
    const double seconds = best_seconds(
        runtime_.compute(), [&](Stream& stream) { stream.host("quantize", work); }, seconds_);
    const double rate = static_cast<double>(bytes) / seconds;
    print_(fmt::format("{:<26}{:>6}{:>11.3f}{:>9.1f}{:>10.0f}",
                       fmt::format("{} {}/{}", name, format_.bits, format_.block),
                       to_string(dtype_), seconds * 1e3, rate * 1e-9, 100 * rate / memcpy_rate_));
  }
  static std::byte* as_bytes(const Tensor& t) { return static_cast<std::byte*>(t.view().data); }
  Isa isa() const { return best_isa(); }
  std::byte* codes() const { return as_bytes(codes_); }
  float* scales() const { return scales_.view().as<float>(); }
  int64_t coded_bytes(int64_t n) const { return format_.code_bytes(n) + 4 * format_.scales(n); }

  Runtime& runtime_;
  const DType dtype_;
  const QuantFormat format_;
  const int64_t bytes_, n_;  // of values
  const Tensor values_, codes_, scales_, recoded_, rescales_;
  const double seconds_, memcpy_rate_;
  const Print& print_;
};

double memcpy_on_one_thread(Runtime& runtime, int64_t bytes, double seconds) {
  const Tensor from = runtime.tensor({bytes}, DType::kU8), to = runtime.tensor({bytes}, DType::kU8);
  std::memset(from.view().data, 1, static_cast<size_t>(bytes));
  const auto copy = [&](Stream& stream) {
    stream.host("memcpy",
                [&] { std::memcpy(to.view().data, from.view().data, static_cast<size_t>(bytes)); });
  };
  return 2.0 * static_cast<double>(bytes) / best_seconds(runtime.compute(), copy, seconds);
}

}  // namespace

void bench_quantize(Runtime& runtime, const std::vector<DType>& dtypes, double seconds,
                    const Print& print, int64_t bytes) {
  const double memcpy_rate = memcpy_on_one_thread(runtime, bytes, seconds);
  print(fmt::format("block quantization, bits/block, on one thread; memcpy there: {:.1f} GB/s",
                    memcpy_rate * 1e-9));
  for (DType dtype : dtypes) {
    for (const QuantFormat& format : {QuantFormat{8, 2048}, QuantFormat{4, 128}}) {
      Bench(runtime, dtype, format, bytes, seconds, memcpy_rate, print).run();
    }
  }
}

}  // namespace zpp
