// Text from a model, one token at a time, by running it anew on the last `context` tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "parallel/engine.h"

namespace zpp {

struct SamplerOptions {
  int64_t tokens = 256;
  int64_t context = 1024;    // of the model
  double temperature = 1.0;  // 0: always the most likely token
  int64_t top_k = 0;         // 0: among all tokens
  uint64_t seed = 0;
};

/// The token at which the distribution softmax(logits / temperature), cut to the `top_k` most
/// likely tokens, has summed up to `uniform` in (0, 1). Ties are broken by the lower id.
int32_t pick_token(std::span<const double> logits, double temperature, int64_t top_k,
                   double uniform);

/// `prompt` (not empty) and `options.tokens` more. The same for the same seed and weights. Ends
/// early when `stop` (may be empty) says so.
/// Errors: kInvalidArgument on an empty prompt
std::vector<int32_t> sample(Engine& engine, std::vector<int32_t> prompt,
                            const SamplerOptions& options, const std::function<bool()>& stop = {});

}  // namespace zpp
