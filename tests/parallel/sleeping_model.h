// A model that computes by sleeping: how long a step takes does not depend on how busy the machine
// is, so it shows what communication adds to it.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "model/modeling.h"
#include "parallel/engine.h"
#include "tests/parallel/tiny_run.h"

namespace zpp {

struct SleepingShape {
  int64_t width = 64;
  int64_t layers = 12;
  std::chrono::milliseconds forward{5}, backward{10};  // of a layer

  /// Messages of half a layer that each of two ranks sends in a step: it gathers each layer twice,
  /// but for the last, and reduces it once; the root is gathered once and reduced once. `width` must
  /// be at least kTinyVocab times two for the root to count for no more than a layer.
  double messages() const { return 3.0 * static_cast<double>(layers); }
  double message_bytes() const { return static_cast<double>(width * width) * 4 / 2; }
};

inline void sleep_on(Stream& stream, std::chrono::milliseconds time) {
  stream.host("sleep", [time] { std::this_thread::sleep_for(time); });
}

class SleepingLayer final : public Unit {
 public:
  SleepingLayer(const Scope& s, const SleepingShape& shape)
      : Unit(s),
        shape_(shape),
        weight_(s.parameter("weight", {shape.width, shape.width}, {Init::kNormal, 0.02f})) {}

 protected:
  Value forward(const Value& x) override {
    sleep_on(x.tape().stream(), shape_.forward);
    const Value y = linear(x, weight_);
    return x.tape().record("sleep", y.tensor(),
                           [to = y.slot(), time = shape_.backward](Backward& b) {
                             sleep_on(b.stream(), time);
                             b.pass(to, b.dy_tensor());
                           });
  }

 private:
  const SleepingShape shape_;
  Parameter& weight_;
};

class SleepingModel final : public Model {
 public:
  SleepingModel(const Scope& s, const SleepingShape& shape)
      : Model(s), tokens_(s.parameter("tokens", {kTinyVocab, shape.width})) {
    for (int64_t i = 0; i < shape.layers; ++i) {
      layers_.push_back(std::make_unique<SleepingLayer>(s / "layers" / i, shape));
    }
  }
  Value loss(Tape& tape, const Batch& batch) override {
    Value x = embedding(tape, batch.tokens, tokens_);
    for (auto& layer : layers_) x = (*layer)(x);
    return linear_cross_entropy(x, tokens_, batch);
  }
  Value logits(Tape&, const Batch&) override { return {}; }
  double flops_per_token() const override { return 1; }

 private:
  Parameter& tokens_;
  std::vector<std::unique_ptr<SleepingLayer>> layers_;
};

/// Of one step, on average.
struct SleepingTimes {
  double step_s = 0;
  double exposed_s = 0;  // that computing stood still
  double comm_s = 0;     // on the communication streams
  double bytes = 0;      // sent
};

/// Some steps on one of two ranks, after a first one that learns the order of the layers.
inline SleepingTimes time_sleeping(Runtime& runtime, const Mesh& mesh, const SleepingShape& shape,
                                   bool overlap, int64_t prefetch, int steps = 2) {
  EngineOptions options{.optimizer = {.lr = 1e-3}};
  options.zero.overlap = overlap;
  options.zero.prefetch_units = prefetch;
  Engine engine(
      runtime, options,
      [&shape](const Scope& s) { return std::make_unique<SleepingModel>(s, shape); }, &mesh);
  const std::vector<HostBatch> batches = {tiny_batch(engine.rank(), 1, false)};
  engine.train_step(0, 1e-3, batches);
  const CommStats before = engine.comm_stats();
  const auto begin = std::chrono::steady_clock::now();
  for (int64_t step = 1; step <= steps; ++step) engine.train_step(step, 1e-3, batches);
  const std::chrono::duration<double> total = std::chrono::steady_clock::now() - begin;
  const CommStats after = engine.comm_stats();
  return {.step_s = total.count() / steps,
          .exposed_s = (after.exposed_s - before.exposed_s) / steps,
          .comm_s = (after.seconds - before.seconds) / steps,
          .bytes = static_cast<double>(after.sent_bytes.back() - before.sent_bytes.back()) / steps};
}

}  // namespace zpp
