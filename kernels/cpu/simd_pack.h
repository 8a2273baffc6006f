// Vectors of the instruction set being compiled, and operands packed into panels of them: for
// *_simd.cc files only.
#pragma once

#include "kernels/cpu/simd_math.h"

namespace zpp::kernels {
namespace ZPP_ISA {

#ifdef __AVX512F__
constexpr int kVectorBytes = 64;
#else
constexpr int kVectorBytes = 32;
#endif

template <class T>
struct Vector {
  typedef T type __attribute__((vector_size(kVectorBytes)));
  typedef T unaligned __attribute__((vector_size(kVectorBytes), aligned(sizeof(T)), may_alias));
};

template <class T>
constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(T));
template <class T>
constexpr int kCols = 2 * kLanes<T>;

typedef float F8 __attribute__((vector_size(32)));
typedef float F8Unaligned __attribute__((vector_size(32), aligned(4), may_alias));
typedef uint32_t U8 __attribute__((vector_size(32)));
typedef int32_t I8 __attribute__((vector_size(32)));
typedef uint16_t H8Unaligned __attribute__((vector_size(16), aligned(2), may_alias));

typedef float F4 __attribute__((vector_size(16)));
typedef float F4Unaligned __attribute__((vector_size(16), aligned(4), may_alias));
typedef uint32_t U4 __attribute__((vector_size(16)));
typedef uint16_t H4Unaligned __attribute__((vector_size(8), aligned(2), may_alias));

ZPP_INLINE F4 load4(const float* from) { return *reinterpret_cast<const F4Unaligned*>(from); }
ZPP_INLINE F4 load4(const bf16* from) {
  const H4Unaligned half = *reinterpret_cast<const H4Unaligned*>(from);
  return reinterpret_cast<F4>(__builtin_convertvector(half, U4) << 16);
}
ZPP_INLINE F8 load8(const float* from) { return *reinterpret_cast<const F8Unaligned*>(from); }
ZPP_INLINE F8 load8(const bf16* from) {
  const H8Unaligned half = *reinterpret_cast<const H8Unaligned*>(from);
  return reinterpret_cast<F8>(__builtin_convertvector(half, U8) << 16);
}

ZPP_INLINE void exchange(F8& x, F8& y, const I8& low, const I8& high) {
  const F8 first = __builtin_shuffle(x, y, low);
  y = __builtin_shuffle(x, y, high);
  x = first;
}

// Off-diagonal blocks of size 1, 2 and 4 change places.
ZPP_INLINE void transpose8(F8 (&r)[8]) {
  const I8 low1 = {0, 8, 2, 10, 4, 12, 6, 14}, high1 = {1, 9, 3, 11, 5, 13, 7, 15};
  const I8 low2 = {0, 1, 8, 9, 4, 5, 12, 13}, high2 = {2, 3, 10, 11, 6, 7, 14, 15};
  const I8 low4 = {0, 1, 2, 3, 8, 9, 10, 11}, high4 = {4, 5, 6, 7, 12, 13, 14, 15};
  for (int i = 0; i < 8; i += 2) exchange(r[i], r[i + 1], low1, high1);
  for (int i = 0; i < 8; i += (i % 4 == 1 ? 3 : 1)) exchange(r[i], r[i + 2], low2, high2);
  for (int i = 0; i < 4; ++i) exchange(r[i], r[i + 4], low4, high4);
}

// Writes to[k * P + i] for `count` <= P lines that are dense along k; the rest of a panel is zero.
// Stores are 8 wide and may spill past their row: lines are written from the last group of 8 to the
// first, so that the right value comes last; the very last row spills up to 7 elements past the
// panel. The panel after this one is asked for meanwhile: its runs are too short for the processor
// to foresee.
template <int P, class T>
static void pack_transposed(const T* from, int64_t stride, int64_t count, int64_t depth,
                            float* to) {
  int64_t k = 0;
  for (; k + 8 <= depth; k += 8) {
    for (int group = (P - 1) / 8 * 8; group >= 0; group -= 8) {
      F8 block[8];
      for (int i = 0; i < 8; ++i) {
        const T* const line = from + (group + i) * stride + k;
        block[i] = group + i < count ? load8(line) : F8{};
        if (k % 32 == 0) __builtin_prefetch(line + P * stride);
      }
      transpose8(block);
      for (int i = 0; i < 8; ++i) {
        *reinterpret_cast<F8Unaligned*>(to + (k + i) * P + group) = block[i];
      }
    }
  }
  for (; k < depth; ++k) {
    for (int i = 0; i < P; ++i) to[k * P + i] = i < count ? load(from[i * stride + k]) : 0.0f;
  }
}

// P neighbouring elements, in whole vectors as far as they go.
template <int P, class T>
ZPP_INLINE void pack_line(const T* from, Acc<T>* to) {
  if constexpr (sizeof(Acc<T>) == sizeof(float)) {
    constexpr int kEights = P / 8 * 8, kFours = P / 4 * 4;
    for (int i = 0; i < kEights; i += 8) {
      *reinterpret_cast<F8Unaligned*>(to + i) = load8(from + i);
    }
    if (kEights < kFours) *reinterpret_cast<F4Unaligned*>(to + kEights) = load4(from + kEights);
    for (int i = kFours; i < P; ++i) to[i] = load(from[i]);
  } else {
    for (int i = 0; i < P; ++i) to[i] = load(from[i]);
  }
}

// Packs `count` lines of an operand, `stride_i` apart, over `depth` steps of `stride_k`.
template <int P, class T>
static void pack(const T* from, int64_t stride_i, int64_t stride_k, int64_t count, int64_t depth,
                 Acc<T>* to) {
  if constexpr (sizeof(Acc<T>) == sizeof(float)) {
    if (stride_k == 1) return pack_transposed<P>(from, stride_i, count, depth, to);
  }
  if (stride_i == 1 && count == P) {
    constexpr int kLinesAhead = 16;
    for (int64_t k = 0; k < depth; ++k) {
      __builtin_prefetch(from + (k + kLinesAhead) * stride_k);
      pack_line<P>(from + k * stride_k, to + k * P);
    }
    return;
  }
  for (int64_t k = 0; k < depth; ++k) {
    for (int i = 0; i < P; ++i) {
      to[k * P + i] = i < count ? load(from[i * stride_i + k * stride_k]) : Acc<T>{0};
    }
  }
}

}  // namespace ZPP_ISA
}  // namespace zpp::kernels
