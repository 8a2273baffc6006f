#include "kernels/cpu/quantize.h"

#include "kernels/cpu/quantize_simd.h"

namespace zpp::kernels::cpu {
namespace {

size_t index_of(const QuantFormat& format) { return format.bits == 8 ? 0 : 1; }

const QuantizeSimd::ByBits& table_of(Isa isa, const QuantFormat& format) {
  return simd_table_for(isa, static_cast<const QuantizeSimd*>(nullptr)).by_bits[index_of(format)];
}

/// Whether stores should go past the caches: see elementwise.cc.
bool streams(const Dequantize& args) {
  constexpr int64_t kBytes = int64_t{16} << 20;
  constexpr uintptr_t kAlignment = 64;
  return !args.accumulate && args.n * size_of(args.out_dtype) >= kBytes &&
         reinterpret_cast<uintptr_t>(args.out) % kAlignment == 0;
}

}  // namespace

void quantize(Isa isa, const Quantize& args) {
  const QuantizeSimd::ByBits& table = table_of(isa, args.format);
  const auto encode = args.dtype == DType::kBF16 ? table.encode_bf16 : table.encode_f32;
  encode(args.from, args.hadamard,
         {args.format, args.n, args.rounding, args.first, args.codes, args.scales});
}

void dequantize(Isa isa, const Dequantize& args) {
  const QuantizeSimd::ByBits& table = table_of(isa, args.format);
  const auto decode = args.out_dtype == DType::kBF16 ? table.decode_bf16 : table.decode_f32;
  decode({args.sources, args.count, args.format, args.n},
         {args.out, args.scale, args.hadamard, args.accumulate, streams(args)});
}

void requantize(Isa isa, const Requantize& args) {
  const QuantizeSimd::ByBits& table = table_of(isa, args.to_format);
  table.encode_sum[index_of(args.format)](
      {args.sources, args.count, args.format, args.n},
      {args.to_format, args.n, args.rounding, args.first, args.codes, args.scales});
}

}  // namespace zpp::kernels::cpu
