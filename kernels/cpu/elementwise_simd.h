// Inner loops of the elementwise kernels over elements (SwiGLU: rows) [begin, end).
#pragma once

#include "core/rng.h"
#include "kernels/cpu/isa.h"

namespace zpp::kernels {

/// Pointers of one call; what a function does not need stays null.
struct Elements {
  const void* a = nullptr;
  const void* b = nullptr;
  void* out = nullptr;
  bool accumulate = false;
  bool stream = false;  // stores may go past the caches; not with accumulate
  double scale = 1;
  int64_t row = 0;  // SwiGLU's F
};

struct DropoutElements {
  const void* x;
  void* y;
  bool accumulate;
  double scale;        // 1 / (1 - p)
  int32_t first_kept;  // of the upper 23 bits of the words: less is dropped
  RngKey key;
};

struct NormalElements {
  void* out;
  float mean, stddev;
  RngKey key;
};

struct ElementwiseSimd {
  using Fn = void(const Elements&, int64_t begin, int64_t end);

  ByType<Fn> add;                                           // out = a + b
  ByType<Fn> copy_from_f32, copy_from_bf16, copy_from_f64;  // by target: out (+)= scale * a
  ByType<Fn> gelu_tanh;                                     // out = f(a)
  ByType<Fn> gelu_tanh_backward;                            // out (+)= a * f'(b)
  ByType<Fn> gelu_erf;
  ByType<Fn> gelu_erf_backward;
  ByType<Fn> swiglu;           // out = silu(gate) * up of the rows a
  ByType<Fn> swiglu_backward;  // out (+)= the gradient by b from the rows a
  ByType<void(const DropoutElements&, int64_t begin, int64_t end)> dropout;
  ByType<void(const NormalElements&, int64_t begin, int64_t end)> fill_normal;
};

ZPP_DECLARE_SIMD(ElementwiseSimd)

}  // namespace zpp::kernels
