#include "kernels/cpu/gemm_simd.h"

#include "kernels/cpu/simd_pack.h"

namespace zpp::kernels {
namespace ZPP_ISA {
namespace {

constexpr int kRows = kVectorBytes == 64 ? 14 : 6;  // what fits the registers
// The panel of b (kDepth x 2 vectors) stays in the first-level cache, the block of a (kMaxRows x
// kDepth) in the second.
constexpr int64_t kDepth = 256;
constexpr int64_t kMaxRows = 43 * 6;
constexpr int64_t kMaxCols = 1024;

template <class T>
ZPP_INLINE void micro(int64_t depth, const T* a, const T* b, T* c, int64_t stride, bool add) {
  using V = typename Vector<T>::type;
  using U = typename Vector<T>::unaligned;
  V sum[kRows][2] = {};
  for (int64_t k = 0; k < depth; ++k) {
    const V b0 = *reinterpret_cast<const V*>(b + k * kCols<T>);
    const V b1 = *reinterpret_cast<const V*>(b + k * kCols<T> + kLanes<T>);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const V x = a[k * kRows + i] - V{};  // a + 0 would not fold: -0
      sum[i][0] += x * b0;
      sum[i][1] += x * b1;
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
    U* row = reinterpret_cast<U*>(c + i * stride);
    row[0] = add ? row[0] + sum[i][0] : sum[i][0];
    row[1] = add ? row[1] + sum[i][1] : sum[i][1];
  }
}

// One kRows x kCols block, of which rows x cols exist.
template <class T>
void block(int64_t depth, const T* a, const T* b, T* c, int64_t stride, bool add, int64_t rows,
           int64_t cols) {
  if (rows == kRows && cols == kCols<T>) return micro(depth, a, b, c, stride, add);
  alignas(64) T edge[kRows * kCols<T>];
  micro(depth, a, b, edge, kCols<T>, false);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) {
      T& out = c[i * stride + j];
      out = edge[i * kCols<T> + j] + (add ? out : T{0});
    }
  }
}

template <class T>
T bias_at(const GemmProblem& p, int64_t n) {
  if (p.bias == nullptr) return T{0};
  switch (p.bias_dtype) {
    case DType::kF32:
      return static_cast<T>(static_cast<const float*>(p.bias)[n]);
    case DType::kBF16:
      return static_cast<T>(load(static_cast<const bf16*>(p.bias)[n]));
    default:
      return static_cast<T>(static_cast<const double*>(p.bias)[n]);
  }
}

template <class T>
struct Scratch {
  alignas(64) Acc<T> a[(kMaxRows + kRows) * kDepth];
  alignas(64) Acc<T> b[kCols<Acc<T>> * kDepth];
  alignas(64) Acc<T> spill[8];
  alignas(64) Acc<T> c[kMaxRows * kMaxCols];
};

// out (+)= a b over the whole depth, block of a by block of a.
template <class T>
void multiply(const GemmProblem& p, const GemmTile& t, Scratch<T>& scratch, Acc<T>* out,
              int64_t stride, bool add) {
  constexpr int kWide = kCols<Acc<T>>;
  const T* a = static_cast<const T*>(p.a);
  const T* b = static_cast<const T*>(p.b);
  for (int64_t k = 0; k < p.k; k += kDepth, add = true) {
    const int64_t depth = p.k - k < kDepth ? p.k - k : kDepth;
    for (int64_t m = t.m0; m < t.m1; m += kRows) {
      const int64_t rows = t.m1 - m < kRows ? t.m1 - m : kRows;
      pack<kRows>(a + m * p.a_m + k * p.a_k, p.a_m, p.a_k, rows, depth,
                  scratch.a + (m - t.m0) * depth);
    }
    for (int64_t n = t.n0; n < t.n1; n += kWide) {
      const int64_t cols = t.n1 - n < kWide ? t.n1 - n : kWide;
      pack<kWide>(b + k * p.b_k + n * p.b_n, p.b_n, p.b_k, cols, depth, scratch.b);
      for (int64_t m = t.m0; m < t.m1; m += kRows) {
        const int64_t rows = t.m1 - m < kRows ? t.m1 - m : kRows;
        block(depth, scratch.a + (m - t.m0) * depth, scratch.b,
              out + (m - t.m0) * stride + (n - t.n0), stride, add, rows, cols);
      }
    }
  }
}

template <class T, class C>
void tile_of(const GemmProblem& p, const GemmTile& t, void* memory) {
  using A = Acc<T>;
  Scratch<T>& scratch = *static_cast<Scratch<T>*>(memory);
  constexpr bool kDirect = sizeof(C) == sizeof(A);
  const int64_t rows = t.m1 - t.m0, cols = t.n1 - t.n0;
  C* c = static_cast<C*>(p.c) + t.m0 * p.c_m + t.n0;
  A* out = scratch.c;
  int64_t stride = cols;
  if constexpr (kDirect) {
    out = c;
    stride = p.c_m;
  }
  const bool keep = kDirect && p.accumulate;
  const bool start = p.bias != nullptr || p.k == 0;
  for (int64_t i = 0; start && i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) {
      A& x = out[i * stride + j];
      x = (keep ? x : A{0}) + bias_at<A>(p, t.n0 + j);
    }
  }
  multiply<T>(p, t, scratch, out, stride, start || keep);
  if constexpr (!kDirect) {
    for (int64_t i = 0; i < rows; ++i) {
      C* to = c + i * p.c_m;
      const A* from = out + i * stride;
      if (p.accumulate) {
#pragma omp simd
        for (int64_t j = 0; j < cols; ++j) to[j] = store<C>(load(to[j]) + from[j]);
      } else {
#pragma omp simd
        for (int64_t j = 0; j < cols; ++j) to[j] = store<C>(from[j]);
      }
    }
  }
}

void tile(const GemmProblem& p, const GemmTile& t, void* scratch) {
  switch (p.dtype) {
    case DType::kF32:
      return tile_of<float, float>(p, t, scratch);
    case DType::kBF16:
      if (p.c_dtype == DType::kF32) return tile_of<bf16, float>(p, t, scratch);
      return tile_of<bf16, bf16>(p, t, scratch);
    default:
      return tile_of<double, double>(p, t, scratch);
  }
}

}  // namespace
}  // namespace ZPP_ISA

ZPP_DEFINE_SIMD(GemmSimd, tile, kMaxRows, kMaxCols, sizeof(Scratch<double>), kRows, kCols<float>)

}  // namespace zpp::kernels
