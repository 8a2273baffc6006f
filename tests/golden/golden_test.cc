// Tiny models against PyTorch: the files beside this test, written by make_golden.py, hold weights
// and what PyTorch computes from them in f64.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "tests/model/grad_check.h"
#include "tests/model/model_bench.h"

namespace zpp::test {
namespace {

using nlohmann::json;

/// Reader of the layout that make_golden.py describes.
class GoldenFile {
 public:
  explicit GoldenFile(const std::string& name) {
    std::ifstream file("tests/golden/" + name + ".golden", std::ios::binary);
    if (!file) throw Error(Code::kNotFound, "cannot open golden file " + name);
    const std::string all((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    uint64_t length = 0;
    std::memcpy(&length, all.data(), sizeof length);
    header_ = json::parse(all.substr(8, length));
    bytes_ = all.substr(8 + length);
  }

  std::string metadata(const std::string& key) const { return header_.at("__metadata__").at(key); }
  std::vector<int64_t> shape(const std::string& name) const { return header_.at(name).at("shape"); }

  std::vector<std::string> names(const std::string& prefix) const {
    std::vector<std::string> found;
    for (const auto& [key, value] : header_.items()) {
      if (key.starts_with(prefix)) found.push_back(key.substr(prefix.size()));
    }
    return found;
  }

  template <class T>
  std::vector<T> raw(const std::string& name) const {
    const size_t begin = header_.at(name).at("data_offsets").at(0),
                 end = header_.at(name).at("data_offsets").at(1);
    std::vector<T> values((end - begin) / sizeof(T));
    std::memcpy(values.data(), bytes_.data() + begin, end - begin);
    return values;
  }

  std::vector<double> numbers(const std::string& name) const {
    if (header_.at(name).at("dtype") == "F64") return raw<double>(name);
    const std::vector<float> values = raw<float>(name);
    return {values.begin(), values.end()};
  }

 private:
  json header_;
  std::string bytes_;
};

class Golden : public testing::TestWithParam<const char*> {
 protected:
  Golden() : file_(GetParam()) {
    const std::vector<int32_t> tokens = file_.raw<int32_t>("tokens"),
                               targets = file_.raw<int32_t>("targets");
    const int64_t count = file_.shape("tokens")[0], rows = file_.shape("tokens")[1],
                  length = file_.shape("tokens")[2];
    for (int64_t i = 0; i < count; ++i) {
      const HostRows all{count * rows, length, tokens, targets, {}};
      batches_.push_back(all.slice(i * rows, (i + 1) * rows));
    }
  }

  void load_weights(ModelBench& bench) const {
    for (const std::string& name : file_.names("weight/")) {
      bench.set_weight(name, file_.numbers("weight/" + name));
    }
  }

  const GoldenFile file_;
  std::vector<HostRows> batches_;
};

TEST_P(Golden, HasTheSameParameters) {
  const ModelBench bench(file_.metadata("config"));
  std::vector<std::string> ours = bench.names(), theirs = file_.names("weight/");
  std::sort(ours.begin(), ours.end());
  std::sort(theirs.begin(), theirs.end());
  EXPECT_EQ(ours, theirs);
}

TEST_P(Golden, LossAndGradientsAreThoseOfPyTorch) {
  ModelBench bench(file_.metadata("config"));
  load_weights(bench);
  EXPECT_NEAR(bench.run(batches_[0]), file_.numbers("loss").at(0), 1e-5);
  for (const std::string& name : file_.names("grad/")) {
    EXPECT_LT(relative_error(bench.gradient(name), file_.numbers("grad/" + name)), 1e-4) << name;
  }
}

TEST_P(Golden, GradientsInDoublePrecisionAreThoseOfPyTorchToRounding) {
  ModelBench bench(file_.metadata("config"), {.dtype = DType::kF64});
  load_weights(bench);
  EXPECT_NEAR(bench.run(batches_[0]), file_.numbers("loss").at(0), 1e-7);
  for (const std::string& name : file_.names("grad/")) {
    EXPECT_LT(relative_error(bench.gradient(name), file_.numbers("grad/" + name)), 1e-6) << name;
  }
}

TEST_P(Golden, LogitsOfEveryPrefixAreThoseOfPyTorch) {
  ModelBench bench(file_.metadata("config"));
  load_weights(bench);
  const std::vector<double> want = file_.numbers("logits");
  const HostRows& batch = batches_[0];
  const auto vocab = static_cast<size_t>(file_.shape("logits")[2]);
  for (int64_t t = 1; t <= batch.length; ++t) {
    HostRows prefix{batch.rows, t, {}, {}, {}};
    std::vector<double> expected;
    for (int64_t r = 0; r < batch.rows; ++r) {
      for (int64_t s = 0; s < t; ++s)
        prefix.tokens.push_back(batch.tokens[static_cast<size_t>(r * batch.length + s)]);
      const size_t row = static_cast<size_t>(r * batch.length + t - 1) * vocab;
      for (size_t v = 0; v < vocab; ++v) expected.push_back(want[row + v]);
    }
    EXPECT_LT(relative_error(bench.logits(prefix), expected), 1e-5) << "after " << t << " tokens";
  }
}

TEST_P(Golden, TwentyStepsOfAdamWLoseTheSame) {
  ModelBench bench(file_.metadata("config"));
  load_weights(bench);
  const json o = json::parse(file_.metadata("optimizer"));
  const ModelBench::Update update = {.lr = o.at("lr"),
                                     .beta1 = o.at("beta1"),
                                     .beta2 = o.at("beta2"),
                                     .eps = o.at("eps"),
                                     .weight_decay = o.at("weight_decay"),
                                     .clip = o.at("clip")};
  const std::vector<double> want = file_.numbers("losses");
  ASSERT_EQ(want.size(), 20u);
  for (size_t step = 0; step < want.size(); ++step) {
    const double loss = bench.run(batches_[step % batches_.size()]);
    EXPECT_NEAR(loss, want[step], 1e-5) << "step " << step;
    bench.update(update, loss);
  }
  EXPECT_LT(want.back(), want.front() - 1.0) << "the golden run should learn something";
}

TEST_P(Golden, RecomputationChangesNoBit) {
  ModelBench bench(file_.metadata("config"));
  load_weights(bench);
  const double kept = bench.run(batches_[0]);
  const std::vector<double> gradients = bench.gradients();
  EXPECT_EQ(bench.run(batches_[0], {.recompute = true}), kept);
  EXPECT_EQ(bench.gradients(), gradients);
}

TEST_P(Golden, MicroBatchesAddUpToTheWholeBatch) {
  ModelBench bench(file_.metadata("config"));
  load_weights(bench);
  const HostRows& batch = batches_[0];
  const double whole = bench.run(batch);
  const std::vector<double> gradients = bench.gradients();
  bench.restart();
  double sum = 0;
  for (int64_t row = 0; row < batch.rows; ++row) {
    const HostRows part = batch.slice(row, row + 1);
    const double share = static_cast<double>(part.valid()) / static_cast<double>(batch.valid());
    sum += share * bench.accumulate(part, {}, share);
  }
  EXPECT_NEAR(sum, whole, 1e-6);
  EXPECT_LT(relative_error(bench.gradients(), gradients), 1e-6);
}

TEST_P(Golden, Bfloat16ComesClose) {
  ModelBench bench(file_.metadata("config"), {.dtype = DType::kBF16});
  load_weights(bench);
  const double want = file_.numbers("loss").at(0);
  EXPECT_NEAR(bench.run(batches_[0]), want, 0.02 * want);
  for (const std::string& name : file_.names("grad/")) {
    EXPECT_LT(relative_error(bench.gradient(name), file_.numbers("grad/" + name)), 0.06) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Golden, testing::Values("gpt2", "neox", "llama"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace zpp::test
