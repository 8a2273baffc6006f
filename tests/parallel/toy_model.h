// A model of three small layers that runs them in the order that a test wants.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "model/modeling.h"
#include "parallel/engine.h"
#include "tests/parallel/tiny_run.h"

namespace zpp {

class ToyLayer final : public Unit {
 public:
  ToyLayer(const Scope& s, int64_t width)
      : Unit(s), weight_(s.parameter("weight", {width, width}, {Init::kNormal, 0.1f})) {}

 protected:
  Value forward(const Value& x) override { return add(x, linear(x, weight_)); }

 private:
  Parameter& weight_;
};

class Toy final : public Model {
 public:
  /// Calls `before_layers` in each forward pass if it is not empty. Both must outlive the model and
  /// may change from step to step.
  Toy(const Scope& s, const std::vector<int>& order, const std::function<void()>& before_layers)
      : Model(s),
        order_(order),
        before_layers_(before_layers),
        tokens_(s.parameter("tokens", {kTinyVocab, 16})) {
    for (int64_t i = 0; i < 3; ++i) {
      layers_.push_back(std::make_unique<ToyLayer>(s / "layers" / i, 16));
    }
  }
  Value loss(Tape& tape, const Batch& batch) override {
    return linear_cross_entropy(hidden(tape, batch), tokens_, batch);
  }
  Value logits(Tape& tape, const Batch& batch) override {
    return linear_f32(last_position(hidden(tape, batch)), tokens_);
  }
  double flops_per_token() const override { return 1; }

 private:
  Value hidden(Tape& tape, const Batch& batch) {
    Value x = embedding(tape, batch.tokens, tokens_);
    if (before_layers_) before_layers_();
    for (const int i : order_) x = (*layers_[static_cast<size_t>(i)])(x);
    return x;
  }
  const std::vector<int>& order_;
  const std::function<void()>& before_layers_;
  Parameter& tokens_;
  std::vector<std::unique_ptr<ToyLayer>> layers_;
};

/// One rank that trains it.
struct ToyRank {
  std::vector<int> order = {0, 1, 2};
  std::function<void()> before_layers;
  std::vector<std::string> warnings;
  std::unique_ptr<Engine> engine;

  ToyRank(Runtime& runtime, const Mesh* mesh) {
    EngineOptions options{.optimizer = {.lr = 1e-2}};
    options.warn = [this](const std::string& text) { warnings.push_back(text); };
    engine = std::make_unique<Engine>(
        runtime, options,
        [this](const Scope& s) { return std::make_unique<Toy>(s, order, before_layers); }, mesh);
  }
  double step(int64_t step, int64_t samples = 2) {
    const int64_t first = (step * engine->world() + engine->rank()) * samples;
    return engine->train_step(step, 1e-2, std::vector{tiny_batch(first, samples, true)}).loss;
  }
};

}  // namespace zpp
