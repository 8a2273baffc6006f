#include "model/nn/layers.h"

#include "model/ops/linear.h"
#include "model/ops/norm.h"

namespace zpp {
namespace {

Parameter* optional_bias(const Scope& scope, int64_t width, bool wanted) {
  return wanted ? &scope.parameter("bias", {width}, {Init::kZeros}) : nullptr;
}

}  // namespace

Linear::Linear(const Scope& scope, int64_t in, int64_t out, const Options& options)
    : Module(scope),
      weight_(scope.parameter("weight", {out, in}, {Init::kNormal, options.init_std})),
      bias_(optional_bias(scope, out, options.bias)) {}

Value Linear::operator()(const Value& x) const { return linear(x, weight_, bias_); }

LayerNorm::LayerNorm(const Scope& scope, int64_t width, const Options& options)
    : Module(scope),
      weight_(scope.parameter("weight", {width}, {Init::kOnes})),
      bias_(optional_bias(scope, width, options.bias)),
      eps_(static_cast<float>(options.eps)) {}

Value LayerNorm::operator()(const Value& x) const { return layer_norm(x, weight_, bias_, eps_); }

RmsNorm::RmsNorm(const Scope& scope, int64_t width, double eps)
    : Module(scope),
      weight_(scope.parameter("weight", {width}, {Init::kOnes})),
      eps_(static_cast<float>(eps)) {}

Value RmsNorm::operator()(const Value& x) const { return rms_norm(x, weight_, eps_); }

}  // namespace zpp
