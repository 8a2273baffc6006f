#include "parallel/train_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "core/data/token_loader.h"
#include "core/rng.h"

namespace zpp {
namespace {

std::shared_ptr<const TokenLoader> open(const TrainConfig& config, std::string_view key,
                                        const std::vector<DataSource>& sources) {
  try {
    return std::make_shared<TokenLoader>(
        sources, TokenLoader::Options{.context = config.facts.context,
                                      .vocab = config.facts.vocab,
                                      .seed = static_cast<uint64_t>(config.run.seed),
                                      .document_mask = config.data.document_mask});
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", key, error.what()));
  }
}

int64_t file_bytes(const TokenLoader& loader) {
  int64_t bytes = 0;
  for (const TokenFile& file : loader.files()) bytes += file.size() * size_of(file.info().type);
  return bytes;
}

}  // namespace

TrainData open_train_data(const TrainConfig& config) {
  const auto train = open(config, "data.train", config.data.train);
  TrainData data;
  data.train = [train](int64_t first, int64_t n) { return train->batch(first, n); };
  data.facts = {.windows = train->windows(), .train_bytes = file_bytes(*train), .val_bytes = 0};
  if (config.data.val.empty()) return data;
  const auto val = open(config, "data.val", config.data.val);
  data.val = [val](int64_t first, int64_t n) { return val->eval_batch(first, n); };
  data.val_windows = val->windows();
  if (config.train.eval_every > 0) {
    // Evaluation reads neighbouring windows from the beginning.
    const int64_t windows =
        std::min(val->windows(), config.train.eval_batches * config.train.global_batch);
    data.facts.val_bytes = file_bytes(*val) / val->windows() * windows;
  }
  return data;
}

TrainData synthetic_data(const TrainConfig& config) {
  const auto batch = [vocab = config.facts.vocab, context = config.facts.context,
                      seed = static_cast<uint64_t>(config.run.seed)](int64_t first, int64_t n) {
    const RngKey key{seed, hash_name("synthetic data"), 0};
    const auto count = static_cast<size_t>(n * context);
    HostBatch out{.first_sample = first,
                  .samples = n,
                  .length = context,
                  .tokens = std::vector<int32_t>(count),
                  .targets = std::vector<int32_t>(count),
                  .doc_start = {},
                  .valid = n * context};
    const auto id = [&](uint64_t i) {
      return static_cast<int32_t>(key.bits(i) % static_cast<uint64_t>(vocab));
    };
    for (size_t i = 0; i < count; ++i) {
      const uint64_t at = static_cast<uint64_t>(first * context) + i;
      out.tokens[i] = id(at);
      out.targets[i] = id(at + 1);
    }
    return out;
  };
  TrainData data;
  data.train = batch;
  data.val = batch;
  data.val_windows = int64_t{1} << 40;
  return data;
}

}  // namespace zpp
