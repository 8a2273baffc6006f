#include "parallel/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/rng.h"

namespace zpp {

int32_t pick_token(std::span<const double> logits, double temperature, int64_t top_k,
                   double uniform) {
  if (std::any_of(logits.begin(), logits.end(), [](double x) { return std::isnan(x); })) {
    throw Error(Code::kFailedPrecondition, "sample: the model's logits are not numbers (NaN)");
  }
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto likelier = [&logits](int32_t a, int32_t b) {
    const double la = logits[static_cast<size_t>(a)], lb = logits[static_cast<size_t>(b)];
    return la != lb ? la > lb : a < b;
  };
  if (temperature <= 0.0) return *std::min_element(order.begin(), order.end(), likelier);
  if (top_k > 0 && top_k < static_cast<int64_t>(order.size())) {
    std::nth_element(order.begin(), order.begin() + top_k, order.end(), likelier);
    order.resize(static_cast<size_t>(top_k));
    // The order of summation must not depend on how the selection went.
    std::sort(order.begin(), order.end());
  }
  double highest = -INFINITY;
  for (const int32_t id : order) highest = std::max(highest, logits[static_cast<size_t>(id)]);
  std::vector<double> weights;
  for (const int32_t id : order) {
    weights.push_back(std::exp((logits[static_cast<size_t>(id)] - highest) / temperature));
  }
  double left = uniform * std::accumulate(weights.begin(), weights.end(), 0.0);
  for (size_t i = 0; i < order.size(); ++i) {
    left -= weights[i];
    if (left <= 0.0) return order[i];
  }
  return order.back();
}

std::vector<int32_t> sample(Engine& engine, std::vector<int32_t> prompt,
                            const SamplerOptions& options, const std::function<bool()>& stop) {
  if (prompt.empty()) {
    throw Error(Code::kInvalidArgument, "sample: the prompt is empty, there is nothing to go on");
  }
  // Few different lengths, since the first product of each shape costs extra.
  constexpr int64_t kLengthStep = 32;
  const RngKey key{options.seed, hash_name("sample"), 0};
  std::vector<int32_t> text = std::move(prompt);
  for (int64_t i = 0; i < options.tokens && !(stop && stop()); ++i) {
    const int64_t fill = std::min<int64_t>(static_cast<int64_t>(text.size()), options.context);
    const int64_t length =
        std::min((fill + kLengthStep - 1) / kLengthStep * kLengthStep, options.context);
    std::vector<int32_t> window(static_cast<size_t>(length), 0);
    std::copy(text.end() - fill, text.end(), window.end() - fill);
    const std::vector<double> logits = engine.next_logits(window, fill);
    text.push_back(pick_token(logits, options.temperature, options.top_k,
                              uniform_from_bits(key.bits(static_cast<uint64_t>(i)))));
  }
  return text;
}

}  // namespace zpp
