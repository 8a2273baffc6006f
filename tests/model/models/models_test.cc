#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "model/registry.h"
#include "tests/model/grad_check.h"
#include "tests/model/model_bench.h"

namespace zpp::test {
namespace {

const std::string kGpt =
    R"({"name": "gpt", "layers": 2, "width": 32, "heads": 4, "context": 24, "vocab": 61, "init_std": 0.2})";
const std::string kNeox =
    R"({"name": "gpt", "layers": 2, "width": 32, "heads": 2, "context": 24, "vocab": 61, "init_std": 0.2,
        "positions": "rotary", "rotary_fraction": 0.25, "gelu": "erf", "parallel_residual": true,
        "tied_head": false})";
const std::string kLlama =
    R"({"name": "llama", "layers": 2, "width": 32, "heads": 4, "kv_heads": 2, "context": 24, "vocab": 61,
        "ffn": 48, "init_std": 0.2})";

struct Size {
  const char* name;
  const char* config;
  int64_t parameters;
};

class PublishedSize : public testing::TestWithParam<Size> {};

TEST_P(PublishedSize, CountsItsParameters) {
  ParameterTable table(DType::kBF16);
  const std::string config = GetParam().config;
  const bool gpt = config.find("\"gpt\"") != std::string::npos;
  const auto model = find_model(gpt ? "gpt" : "llama")->create(Scope(table), config);
  EXPECT_EQ(table.numel(), GetParam().parameters);
}

INSTANTIATE_TEST_SUITE_P(
    Models, PublishedSize,
    testing::Values(
        Size{"Gpt2Small", R"({"name": "gpt", "layers": 12, "width": 768, "heads": 12})",
             124'439'808},
        Size{"Gpt2Medium", R"({"name": "gpt", "layers": 24, "width": 1024, "heads": 16})",
             354'823'168},
        Size{"Gpt2Large", R"({"name": "gpt", "layers": 36, "width": 1280, "heads": 20})",
             774'030'080},
        Size{"Gpt2Xl", R"({"name": "gpt", "layers": 48, "width": 1600, "heads": 25})",
             1'557'611'200},
        Size{
            "GptNeox20b",
            R"({"name": "gpt", "layers": 44, "width": 6144, "heads": 64, "vocab": 50432, "context": 2048,
                 "positions": "rotary", "rotary_fraction": 0.25, "parallel_residual": true, "tied_head": false,
                 "gelu": "erf"})",
            20'554'567'680},
        Size{"Llama7b", R"({"name": "llama"})", 6'738'415'616}),
    [](const auto& param) { return std::string(param.param.name); });

class AnyModel : public testing::TestWithParam<std::string> {};

TEST_P(AnyModel, StartsNearUniformGuesses) {
  ModelBench bench(GetParam());
  const double uniform = std::log(61.0);
  EXPECT_NEAR(bench.evaluate(random_rows(2, 16, 61, 1)), uniform, 1.5);
}

TEST_P(AnyModel, EvaluationAndTrainingAgreeOnTheLoss) {
  ModelBench bench(GetParam());
  const HostRows rows = random_rows(2, 16, 61, 1);
  EXPECT_EQ(bench.evaluate(rows), bench.run(rows));
}

TEST_P(AnyModel, PackedDocumentsCostWhatTheyCostAlone) {
  ModelBench bench(GetParam(), {.dtype = DType::kF64});
  const HostRows first = random_rows(1, 9, 61, 1), second = random_rows(1, 14, 61, 2);
  HostRows packed = first;
  packed.length = 23;
  packed.tokens.insert(packed.tokens.end(), second.tokens.begin(), second.tokens.end());
  packed.targets.insert(packed.targets.end(), second.targets.begin(), second.targets.end());
  packed.doc_start.assign(23, 9);
  std::fill_n(packed.doc_start.begin(), 9, 0);

  const double alone = bench.evaluate(first) * static_cast<double>(first.valid()) +
                       bench.evaluate(second) * static_cast<double>(second.valid());
  EXPECT_NEAR(bench.run(packed) * static_cast<double>(packed.valid()), alone, 1e-9);
  const std::vector<double> together = bench.gradients();

  const double total = static_cast<double>(packed.valid());
  bench.restart();
  bench.accumulate(first, {}, static_cast<double>(first.valid()) / total);
  bench.accumulate(second, {}, static_cast<double>(second.valid()) / total);
  EXPECT_LT(relative_error(bench.gradients(), together), 1e-10);

  packed.doc_start.assign(23, 0);
  EXPECT_GT(std::abs(bench.run(packed) * total - alone), 1e-3)
      << "without the mask they should see each other";
}

TEST_P(AnyModel, LaterTokensDoNotChangeEarlierLogits) {
  ModelBench bench(GetParam());
  HostRows rows = random_rows(1, 12, 61, 1);
  // Only the first six positions count; what follows them must not matter.
  std::fill(rows.targets.begin() + 6, rows.targets.end(), -1);
  const double before = bench.evaluate(rows);
  for (size_t i = 6; i < 12; ++i) rows.tokens[i] = (rows.tokens[i] + 17) % 61;
  EXPECT_EQ(bench.evaluate(rows), before);
}

TEST_P(AnyModel, RecomputationNeedsLessMemoryAndGivesTheSameBits) {
  ModelBench bench(GetParam());
  const HostRows rows = random_rows(4, 24, 61, 1);
  const auto peak = [&](bool recompute) {
    bench.runtime().pool().reset_peak();
    bench.run(rows, {.recompute = recompute});
    return bench.runtime().pool().stats().peak_bytes;
  };
  const int64_t kept = peak(false);
  const std::vector<double> gradients = bench.gradients();
  EXPECT_LT(peak(true), kept);
  EXPECT_EQ(bench.gradients(), gradients);
}

TEST_P(AnyModel, LeavesNothingInThePool) {
  ModelBench bench(GetParam());
  const int64_t before = bench.runtime().pool().stats().live_bytes;
  bench.run(random_rows(2, 16, 61, 1));
  bench.evaluate(random_rows(2, 16, 61, 1));
  EXPECT_EQ(bench.runtime().pool().stats().live_bytes, before);
}

std::string name_of(const testing::TestParamInfo<std::string>& info) {
  constexpr const char* kNames[] = {"Gpt", "Neox", "Llama"};
  return kNames[info.index];
}

INSTANTIATE_TEST_SUITE_P(Models, AnyModel, testing::Values(kGpt, kNeox, kLlama), name_of);

TEST(Gpt, DropoutDoesNotDependOnMicroBatchesOrRecomputation) {
  std::string config = kGpt;
  config.insert(config.size() - 1, R"(, "dropout": 0.2)");
  ModelBench bench(config);
  const HostRows rows = random_rows(4, 16, 61, 1);
  const TapeOptions options = {.seed = 3, .step = 5};
  const double whole = bench.run(rows, options);
  const std::vector<double> gradients = bench.gradients();
  EXPECT_NE(whole, bench.run(rows, {.seed = 4, .step = 5}));
  EXPECT_NE(whole, bench.evaluate(rows));

  TapeOptions recompute = options;
  recompute.recompute = true;
  EXPECT_EQ(bench.run(rows, recompute), whole);
  EXPECT_EQ(bench.gradients(), gradients);

  bench.restart();
  double sum = 0;
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 1}, {1, 4}}) {
    const HostRows part = rows.slice(begin, end);
    const double share = static_cast<double>(part.valid()) / static_cast<double>(rows.valid());
    TapeOptions of_part = options;
    of_part.first_sample = begin;
    sum += share * bench.accumulate(part, of_part, share);
  }
  EXPECT_NEAR(sum, whole, 1e-6);
  EXPECT_LT(relative_error(bench.gradients(), gradients), 1e-6);
}

TEST(Gpt, LogitsOfAWholeBatchAreNeverStored) {
  constexpr int64_t kVocab = 20000, kTokens = 2048;
  ModelBench bench(
      R"({"name": "gpt", "layers": 1, "width": 8, "heads": 1, "context": 1024, "vocab": 20000})");
  const int64_t before = bench.runtime().pool().stats().live_bytes;
  bench.runtime().pool().reset_peak();
  bench.run(random_rows(2, kTokens / 2, kVocab, 1));
  EXPECT_LT(bench.runtime().pool().stats().peak_bytes - before, kTokens * kVocab * 4 / 3);
}

TEST(Gpt, InitialWeightsFollowTheConfiguration) {
  ModelBench bench(
      R"({"name": "gpt", "layers": 8, "width": 64, "heads": 4, "context": 8, "vocab": 61})");
  const auto spread = [&](const std::string& name) {
    double sum = 0;
    const std::vector<double> w = bench.weight(name);
    for (double v : w) sum += v * v;
    return std::sqrt(sum / static_cast<double>(w.size()));
  };
  EXPECT_NEAR(spread("blocks.3.qkv.weight"), 0.02, 0.001);
  EXPECT_NEAR(spread("blocks.3.proj.weight"), 0.02 / 4, 0.0003);
  EXPECT_NEAR(spread("blocks.7.down.weight"), 0.02 / 4, 0.0003);
  EXPECT_EQ(spread("blocks.0.qkv.bias"), 0.0);
  EXPECT_EQ(spread("norm.weight"), 1.0);
  EXPECT_NE(bench.weight("blocks.0.qkv.weight"), bench.weight("blocks.1.qkv.weight"));
}

TEST(Gpt, WithoutBiasHasNone) {
  std::string config = kGpt;
  config.insert(config.size() - 1, R"(, "bias": false)");
  ModelBench bench(config);
  for (const std::string& name : bench.names())
    EXPECT_EQ(name.find("bias"), std::string::npos) << name;
  EXPECT_GT(bench.run(random_rows(2, 8, 61, 1)), 0.0);
}

TEST(Gpt, CountsTheOperationsOfMatrixProductsAndCausalAttention) {
  ParameterTable table(DType::kF32);
  const auto model = find_model("gpt")->create(Scope(table), R"({"name": "gpt"})");
  const double matrices = 12.0 * 12 * 768 * 768 + 50257.0 * 768;
  EXPECT_EQ(model->flops_per_token(), 6 * matrices + 6.0 * 12 * 1024 * 768);
}

std::vector<std::string> problems_of(const std::string& name, const std::string& config) {
  Problems problems;
  find_model(name)->check(config, {.prefix = "model"}, problems);
  return problems.lines();
}

TEST(Models, RefuseFieldsThatDoNotFitTogether) {
  const auto first = [](const std::string& name, const std::string& config) {
    const std::vector<std::string> lines = problems_of(name, config);
    return lines.size() == 1 ? lines[0] : "not one problem";
  };
  EXPECT_EQ(first("gpt", R"({"width": 100, "heads": 3})"),
            "model.heads: is 3 but should divide width, 100");
  EXPECT_EQ(
      first("gpt", R"({"width": 64, "heads": 4, "positions": "rotary", "rotary_fraction": 0.2})"),
      "model.rotary_fraction: makes 3 of 16 channels of a head turn, but they turn in pairs: it "
      "should be an "
      "even number above 0");
  EXPECT_EQ(first("llama", R"({"width": 64, "heads": 4, "kv_heads": 3})"),
            "model.kv_heads: is 3 but should divide heads, 4");
  EXPECT_EQ(
      first("llama", R"({"width": 12, "heads": 4})"),
      "model.heads: makes heads of 3 channels, but rotary positions turn pairs: it should be even");
  EXPECT_TRUE(problems_of("gpt", R"({"width": 64, "heads": 4})").empty());
}

}  // namespace
}  // namespace zpp::test
