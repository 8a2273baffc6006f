// CPU launch of block quantization.
#pragma once

#include "kernels/quantize.h"

namespace zpp::kernels::cpu {

void quantize(Isa isa, const Quantize& args);
void dequantize(Isa isa, const Dequantize& args);
void requantize(Isa isa, const Requantize& args);

}  // namespace zpp::kernels::cpu
