// Inner loops of the host reductions.
#pragma once

#include "kernels/cpu/isa.h"

namespace zpp::kernels {

using HostReducer = void(const void* const* sources, int count, void* out, int64_t n, double scale);

struct HostReducers {
  HostReducer* f32;
  HostReducer* bf16;
  HostReducer* bf16_to_f32;
  HostReducer* f64;
  HostReducer* i32;
  HostReducer* i64;
};

struct HostSumSimd {
  HostReducers sum, max;
};

ZPP_DECLARE_SIMD(HostSumSimd)

}  // namespace zpp::kernels
