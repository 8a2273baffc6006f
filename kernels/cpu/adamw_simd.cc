#include "kernels/cpu/adamw_simd.h"

#include "kernels/cpu/simd_math.h"

namespace zpp::kernels {
namespace ZPP_ISA {
namespace {

template <class A, bool kWeights>
void update(const AdamWUpdate& u, int64_t begin, int64_t end) {
  auto* master = static_cast<A*>(u.master);
  auto* m = static_cast<A*>(u.m);
  auto* v = static_cast<A*>(u.v);
  const auto* grad = static_cast<const A*>(u.grad);
  auto* weights = static_cast<bf16*>(u.weights);
  const auto scale = static_cast<A>(u.grad_scale);
  const auto beta1 = static_cast<A>(u.beta1), rest1 = static_cast<A>(1.0 - u.beta1);
  const auto beta2 = static_cast<A>(u.beta2), rest2 = static_cast<A>(1.0 - u.beta2);
  const auto step = static_cast<A>(u.step), root_scale = static_cast<A>(u.root_scale);
  const auto eps = static_cast<A>(u.eps), decay = static_cast<A>(u.decay);
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) {
    const A g = scale * grad[i];
    const A m_new = beta1 * m[i] + rest1 * g;
    const A v_new = beta2 * v[i] + rest2 * (g * g);
    const A w = master[i];
    const A w_new = w - (step * m_new / (sqrt_of(v_new) * root_scale + eps) + decay * w);
    m[i] = m_new;
    v[i] = v_new;
    master[i] = w_new;
    if constexpr (kWeights) weights[i] = store<bf16>(static_cast<float>(w_new));
  }
}

void update_f32(const AdamWUpdate& u, int64_t begin, int64_t end) {
  if (u.weights != nullptr) {
    update<float, true>(u, begin, end);
  } else {
    update<float, false>(u, begin, end);
  }
}

template <class A, bool kWeights>
void sgd(const AdamWUpdate& u, int64_t begin, int64_t end) {
  auto* master = static_cast<A*>(u.master);
  const auto* grad = static_cast<const A*>(u.grad);
  auto* weights = static_cast<bf16*>(u.weights);
  const auto step = static_cast<A>(u.step * u.grad_scale), decay = static_cast<A>(u.decay);
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) {
    const A w_new = master[i] - (step * grad[i] + decay * master[i]);
    master[i] = w_new;
    if constexpr (kWeights) weights[i] = store<bf16>(static_cast<float>(w_new));
  }
}

void sgd_f32(const AdamWUpdate& u, int64_t begin, int64_t end) {
  if (u.weights != nullptr) {
    sgd<float, true>(u, begin, end);
  } else {
    sgd<float, false>(u, begin, end);
  }
}

}  // namespace
}  // namespace ZPP_ISA

ZPP_DEFINE_SIMD(AdamWSimd, update_f32, update<double, false>, sgd_f32, sgd<double, false>)

}  // namespace zpp::kernels
