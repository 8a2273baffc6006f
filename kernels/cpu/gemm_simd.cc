#include "kernels/cpu/gemm_simd.h"

#include <immintrin.h>

#include "kernels/cpu/simd_pack.h"

namespace zpp::kernels {
namespace ZPP_ISA {
namespace {

constexpr int kRows = kVectorBytes == 64 ? 14 : 6;  // what fits the registers

template <class T>
T bias_at(const GemmProblem& p, int64_t n) {
  switch (p.bias_dtype) {
    case DType::kF32:
      return static_cast<T>(static_cast<const float*>(p.bias)[n]);
    case DType::kBF16:
      return static_cast<T>(load(static_cast<const bf16*>(p.bias)[n]));
    default:
      return static_cast<T>(static_cast<const double*>(p.bias)[n]);
  }
}

/// The sums of one register block.
template <class A>
struct Sums {
  typename Vector<A>::type at[kRows][2];
};

template <class A>
ZPP_INLINE void multiply(int64_t depth, const A* a, const A* b, Sums<A>& sums) {
  using V = typename Vector<A>::type;
  V sum[kRows][2] = {};
  for (int64_t k = 0; k < depth; ++k) {
    const V b0 = *reinterpret_cast<const V*>(b + k * kCols<A>);
    const V b1 = *reinterpret_cast<const V*>(b + k * kCols<A> + kLanes<A>);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const V x = a[k * kRows + i] - V{};  // a + 0 would not fold: -0
      sum[i][0] += x * b0;
      sum[i][1] += x * b1;
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
    sums.at[i][0] = sum[i][0];
    sums.at[i][1] = sum[i][1];
  }
}

// Whole register block into memory of the accumulator's type.
template <class A>
ZPP_INLINE void store_whole(const Sums<A>& sums, A* to, int64_t stride, bool add) {
  using U = typename Vector<A>::unaligned;
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
    U* row = reinterpret_cast<U*>(to + i * stride);
    row[0] = add ? row[0] + sums.at[i][0] : sums.at[i][0];
    row[1] = add ? row[1] + sums.at[i][1] : sums.at[i][1];
  }
}

template <class V>
ZPP_INLINE void stream_to(void* to, V x) {
#ifdef __AVX512F__
  _mm512_stream_si512(static_cast<__m512i*>(to), reinterpret_cast<__m512i>(x));
#else
  _mm256_stream_si256(static_cast<__m256i*>(to), reinterpret_cast<__m256i>(x));
#endif
}

// The same past the caches, where rows start on whole vectors.
template <class A>
ZPP_INLINE void stream_whole(const Sums<A>& sums, A* to, int64_t stride) {
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
    stream_to(to + i * stride, sums.at[i][0]);
    stream_to(to + i * stride + kLanes<A>, sums.at[i][1]);
  }
}

template <class A>
bool starts_on_vectors(const A* to, int64_t stride) {
  return reinterpret_cast<uintptr_t>(to) % kVectorBytes == 0 && stride % kLanes<A> == 0;
}

// The part of a register block that exists, with a bias: to (+)= sums + bias.
template <class A>
void store_part(const Sums<A>& sums, A* to, int64_t stride, bool add, int64_t rows, int64_t cols,
                const A* bias) {
  for (int64_t i = 0; i < rows; ++i) {
    const A* from = reinterpret_cast<const A*>(&sums.at[i]);
    for (int64_t j = 0; j < cols; ++j) {
      A& out = to[i * stride + j];
      out = from[j] + (bias ? bias[j] : A{0}) + (add ? out : A{0});
    }
  }
}

// c (+)= sums (+ earlier) + bias, rounded once.
template <class C, class A>
void store_narrow(const Sums<A>& sums, const A* earlier, int64_t earlier_stride, C* to,
                  int64_t stride, bool add, int64_t rows, int64_t cols, const A* bias) {
  for (int64_t i = 0; i < rows; ++i) {
    A row[kCols<A>];
    __builtin_memcpy(row, &sums.at[i], sizeof(row));
    for (int64_t j = 0; earlier && j < cols; ++j) row[j] += earlier[i * earlier_stride + j];
    for (int64_t j = 0; bias && j < cols; ++j) row[j] += bias[j];
    C* const out = to + i * stride;
    for (int64_t j = 0; add && j < cols; ++j) row[j] += load(out[j]);
    if (cols == kCols<A>) {
#pragma omp simd
      for (int j = 0; j < kCols<A>; ++j) out[j] = store<C>(row[j]);
    } else {
      for (int64_t j = 0; j < cols; ++j) out[j] = store<C>(row[j]);
    }
  }
}

template <class T, class C>
void block_of(const GemmProblem& p, int64_t m, int64_t n, GemmDepth depth, const void* a,
              const void* b, void* sums_memory) {
  using A = Acc<T>;
  constexpr bool kDirect = sizeof(C) == sizeof(A);
  const int64_t rows = p.m - m < kRows ? p.m - m : kRows;
  const int64_t cols = p.n - n < kCols<A> ? p.n - n : kCols<A>;
  const bool first = depth.begin == 0, last = depth.end == p.k;
  C* const c = static_cast<C*>(p.c) + m * p.c_m + n;
  if ((kDirect || last) && (!p.bypass_caches || p.accumulate)) {
    // Its lines arrive while the block is computed.
    for (int64_t i = 0; i < rows; ++i) __builtin_prefetch(c + i * p.c_m, 1);
  }
  Sums<A> sums;
  multiply(depth.size(), static_cast<const A*>(a), static_cast<const A*>(b), sums);

  A bias[kCols<A>];
  const bool with_bias = p.bias != nullptr && (kDirect ? first : last);
  for (int64_t j = 0; with_bias && j < cols; ++j) bias[j] = bias_at<A>(p, n + j);
  const bool whole = rows == kRows && cols == kCols<A>;
  A* to = static_cast<A*>(sums_memory) + m * p.n + n;
  int64_t stride = p.n;
  bool add = !first;
  if constexpr (kDirect) {
    to = c;
    stride = p.c_m;
    add = !first || p.accumulate;
  } else if (last) {
    return store_narrow<C, A>(sums, first ? nullptr : to, stride, c, p.c_m, p.accumulate, rows,
                              cols, with_bias ? bias : nullptr);
  }
  if (whole && !with_bias && !add && p.bypass_caches && starts_on_vectors(to, stride)) {
    return stream_whole(sums, to, stride);
  }
  if (whole && !with_bias) return store_whole(sums, to, stride, add);
  store_part(sums, to, stride, add, rows, cols, with_bias ? bias : nullptr);
}

void block(const GemmProblem& p, int64_t m, int64_t n, GemmDepth depth, const void* a,
           const void* b, void* sums) {
  switch (p.dtype) {
    case DType::kF32:
      return block_of<float, float>(p, m, n, depth, a, b, sums);
    case DType::kBF16:
      if (p.c_dtype == DType::kF32) return block_of<bf16, float>(p, m, n, depth, a, b, sums);
      return block_of<bf16, bf16>(p, m, n, depth, a, b, sums);
    default:
      return block_of<double, double>(p, m, n, depth, a, b, sums);
  }
}

template <class T>
void pack_rows_of(const GemmProblem& p, int64_t m, GemmDepth depth, void* to) {
  pack<kRows>(static_cast<const T*>(p.a) + m * p.a_m + depth.begin * p.a_k, p.a_m, p.a_k,
              p.m - m < kRows ? p.m - m : kRows, depth.size(), static_cast<Acc<T>*>(to));
}

template <class T>
void pack_cols_of(const GemmProblem& p, int64_t n, GemmDepth depth, void* to) {
  constexpr int kWide = kCols<Acc<T>>;
  pack<kWide>(static_cast<const T*>(p.b) + n * p.b_n + depth.begin * p.b_k, p.b_n, p.b_k,
              p.n - n < kWide ? p.n - n : kWide, depth.size(), static_cast<Acc<T>*>(to));
}

void pack_rows(const GemmProblem& p, int64_t m, GemmDepth depth, void* to) {
  if (p.dtype == DType::kF32) return pack_rows_of<float>(p, m, depth, to);
  if (p.dtype == DType::kBF16) return pack_rows_of<bf16>(p, m, depth, to);
  pack_rows_of<double>(p, m, depth, to);
}

void pack_cols(const GemmProblem& p, int64_t n, GemmDepth depth, void* to) {
  if (p.dtype == DType::kF32) return pack_cols_of<float>(p, n, depth, to);
  if (p.dtype == DType::kBF16) return pack_cols_of<bf16>(p, n, depth, to);
  pack_cols_of<double>(p, n, depth, to);
}

}  // namespace
}  // namespace ZPP_ISA

ZPP_DEFINE_SIMD(GemmSimd, pack_rows, pack_cols, block, kRows, kCols<float>)

}  // namespace zpp::kernels
