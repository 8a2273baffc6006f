#include "kernels/quantize.h"

#include <fmt/format.h>

#include <string_view>

#include "kernels/cpu/quantize.h"

namespace zpp::kernels {
namespace {

void check(std::string_view what, int64_t n, const QuantFormat& format) {
  const auto refuse = [&](std::string_view why) {
    throw Error(Code::kInvalidArgument, fmt::format("{}: {} values of {} bits in blocks of {}: {}",
                                                    what, n, format.bits, format.block, why));
  };
  if (n < 0) refuse("there cannot be fewer than none");
  if (format.bits != 4 && format.bits != 8) refuse("codes have 4 or 8 bits");
  if (format.block < 32 || format.block > 16384 || format.block % 32 != 0) {
    refuse("a block is a multiple of 32, from 32 to 16384");
  }
}

void check(std::string_view what, DType dtype) {
  if (dtype == DType::kF32 || dtype == DType::kBF16) return;
  throw Error(Code::kInvalidArgument,
              fmt::format("{}: values should be f32 or bf16, found {}", what, to_string(dtype)));
}

void check_count(std::string_view what, int count) {
  if (count >= 1) return;
  throw Error(Code::kInvalidArgument,
              fmt::format("{}: there should be at least one source, found {}", what, count));
}

}  // namespace

void quantize(Isa isa, const Quantize& args) {
  check("quantize", args.n, args.format);
  check("quantize", args.dtype);
  cpu::quantize(isa, args);
}

void dequantize(Isa isa, const Dequantize& args) {
  check("dequantize", args.n, args.format);
  check("dequantize", args.out_dtype);
  check_count("dequantize", args.count);
  cpu::dequantize(isa, args);
}

void requantize(Isa isa, const Requantize& args) {
  check("requantize", args.n, args.format);
  check("requantize", args.n, args.to_format);
  check_count("requantize", args.count);
  cpu::requantize(isa, args);
}

}  // namespace zpp::kernels
