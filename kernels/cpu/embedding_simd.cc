#include "kernels/cpu/embedding_simd.h"

#include "kernels/cpu/simd_loops.h"

namespace zpp::kernels {
namespace ZPP_ISA {
namespace {

template <class T>
void row(const void* a_data, const void* b_data, void* y_data, int64_t n) {
  const auto* a = static_cast<const T*>(a_data);
  const auto* b = static_cast<const T*>(b_data);
  auto* y = static_cast<T*>(y_data);
  if (b == nullptr) {
    for (int64_t i = 0; i < n; ++i) y[i] = a[i];
  } else {
    map(
        y, Put::kStore, n, [](auto p, auto q) ZPP_LAMBDA { return p + q; }, a, b);
  }
}

template <class T>
void add(const void* dy_data, void* sums_data, int64_t n) {
  const auto* dy = static_cast<const T*>(dy_data);
  auto* sums = static_cast<Acc<T>*>(sums_data);
  const auto same = [](auto v) ZPP_LAMBDA { return v; };
  if constexpr (sizeof(T) == sizeof(Acc<T>)) {
    map(sums, Put::kAdd, n, same, dy);
  } else {
    map_in_order(dy, sums, true, n, same);
  }
}

}  // namespace
}  // namespace ZPP_ISA

ZPP_DEFINE_SIMD(EmbeddingSimd, {row<float>, row<bf16>, row<double>},
                {add<float>, add<bf16>, add<double>})

}  // namespace zpp::kernels
