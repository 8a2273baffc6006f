#include "model/nn/unit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "model/model.h"
#include "model/nn/resident.h"
#include "model/ops/elementwise.h"
#include "model/ops/linear.h"
#include "tests/model/grad_check.h"

namespace zpp::test {
namespace {

class TestBlock final : public Unit {
 public:
  explicit TestBlock(const Scope& s)
      : Unit(s), w_(s.parameter("w", {4, 4}, {Init::kNormal, 0.5f})) {}

 protected:
  Value forward(const Value& x) override {
    return add(x, dropout(gelu(linear(x, w_), Activation::kGeluTanh), 0.25));
  }

 private:
  Parameter& w_;
};

/// Two blocks on a constant input: nothing before them wants a gradient.
class TestModel final : public Model {
 public:
  explicit TestModel(const Scope& s)
      : Model(s),
        blocks_(s / "blocks", 2),
        head_(s.parameter("head", {1, 4}, {Init::kNormal, 0.5f})) {}

  Value loss(Tape& tape, const Batch&) override {
    Tensor x = tape.empty({1, 4}, DType::kF32);
    write(tape.stream(), normals("input", 4), x.view());
    return linear(blocks_(tape.constant(std::move(x))), head_);
  }
  Value logits(Tape& tape, const Batch& batch) override { return loss(tape, batch); }
  double flops_per_token() const override { return 0; }

 private:
  Stack<TestBlock> blocks_;
  Parameter& head_;
};

/// Keeps a unit's weights bound only between its hooks, in a buffer that is overwritten with NaN at
/// each release, and writes down what happens.
class ReleasingHooks final : public UnitHooks {
 public:
  ReleasingHooks(ParameterTable& table, Runtime& runtime) : table_(table), runtime_(runtime) {
    for (const auto& unit : table.units()) {
      unit->layout(64);
      weights_.push_back(runtime.tensor({unit->flat_numel()}, unit->dtype()));
      live_.push_back(runtime.tensor({unit->flat_numel()}, unit->dtype()));
      grads_.push_back(runtime.tensor({unit->flat_numel()}, unit->grad_dtype()));
      for (const auto& p : unit->parameters()) {
        fill_initial(runtime.compute(), *p, 0,
                     weights_.back().view().slice(0, p->offset(), p->offset() + p->numel()), 1);
      }
      unit->restart_grads();
    }
  }

  void before_forward(ParameterUnit& unit) override {
    log.push_back("+forward " + unit.name());
    bind(unit);
  }
  void after_forward(ParameterUnit& unit) override {
    log.push_back("-forward " + unit.name());
    release(unit);
  }
  void before_backward(ParameterUnit& unit) override {
    log.push_back("+backward " + unit.name());
    bind(unit);
    unit.bind_grads(grads_[index(unit)].view());
  }
  void after_backward(ParameterUnit& unit) override {
    log.push_back("-backward " + unit.name());
    unit.finish_grads(runtime_.compute());
    unit.bind_grads({});
    release(unit);
  }

  std::vector<double> gradients() {
    std::vector<double> all;
    for (const Tensor& g : grads_) {
      for (double v : read(runtime_.compute(), g.view())) all.push_back(v);
    }
    return all;
  }

  std::vector<std::string> log;

 private:
  size_t index(const ParameterUnit& unit) const {
    size_t i = 0;
    while (table_.units()[i].get() != &unit) ++i;
    return i;
  }
  void bind(ParameterUnit& unit) {
    kernels::copy(runtime_.compute(), weights_[index(unit)].view(), {live_[index(unit)].view()});
    unit.bind_weights(live_[index(unit)].view());
  }
  void release(ParameterUnit& unit) {
    unit.bind_weights({});
    kernels::fill(runtime_.compute(), live_[index(unit)].view(), NAN);
  }

  ParameterTable& table_;
  Runtime& runtime_;
  std::vector<Tensor> weights_, live_, grads_;
};

struct Outcome {
  std::vector<std::string> log;
  std::vector<double> loss, gradients;
};

Outcome train(bool recompute) {
  Runtime runtime({.device = {}, .threads = 1});
  ParameterTable table(DType::kF32);
  TestModel model((Scope(table)));
  ReleasingHooks hooks(table, runtime);
  Tape tape(runtime.pool(), runtime.compute(), hooks, {.recompute = recompute, .seed = 5});
  const Value loss = model.run_loss(tape, {});
  tape.backward(loss, 1.0);
  return {hooks.log, read(runtime.compute(), loss.view()), hooks.gradients()};
}

const std::vector<std::string> kOrder = {
    "+forward root",      "+forward blocks.0",  "-forward blocks.0",  "+forward blocks.1",
    "-forward blocks.1",  "-forward root",      "+backward root",     "+backward blocks.1",
    "-backward blocks.1", "+backward blocks.0", "-backward blocks.0", "-backward root"};

TEST(Unit, HooksComeInExactOrderAlsoWhenTheInputNeedsNoGradient) {
  EXPECT_EQ(train(false).log, kOrder);
}

TEST(Unit, RecomputationCallsHooksInTheSameOrder) { EXPECT_EQ(train(true).log, kOrder); }

TEST(Unit, RecomputationGivesTheSameBitsWithDropoutAndReleasedWeights) {
  const Outcome kept = train(false), again = train(true);
  EXPECT_EQ(again.loss, kept.loss);
  EXPECT_EQ(again.gradients, kept.gradients);
  double sum = 0;
  for (double g : kept.gradients) sum += std::abs(g);
  EXPECT_GT(sum, 0.0);
  EXPECT_TRUE(std::isfinite(sum)) << "a released weight was used";
}

TEST(Unit, EvaluationCallsForwardHooksOnly) {
  Runtime runtime({.device = {}, .threads = 1});
  ParameterTable table(DType::kF32);
  TestModel model((Scope(table)));
  ReleasingHooks hooks(table, runtime);
  Tape tape(runtime.pool(), runtime.compute(), hooks, {.training = false});
  (void)model.run_logits(tape, {});
  EXPECT_EQ(hooks.log, std::vector<std::string>(kOrder.begin(), kOrder.begin() + 6));
  EXPECT_EQ(tape.nodes(), 0u);
}

TEST(Unit, RecomputationKeepsLessThanItsActivations) {
  const auto live_after_forward = [](bool recompute) {
    Runtime runtime({.device = {}, .threads = 1});
    ParameterTable table(DType::kF32);
    TestBlock block(Scope(table) / "block");
    ReleasingHooks hooks(table, runtime);
    Tape tape(runtime.pool(), runtime.compute(), hooks, {.recompute = recompute});
    Tensor x = runtime.tensor({4096, 4}, DType::kF32);
    kernels::fill(runtime.compute(), x.view(), 1.0);
    const int64_t before = runtime.pool().stats().live_bytes;
    const Value y = block(tape.constant(std::move(x)));
    return runtime.pool().stats().live_bytes - before;
  };
  constexpr int64_t kActivation = 4096 * 4 * 4;
  EXPECT_EQ(live_after_forward(true), kActivation) << "the result";
  EXPECT_GT(live_after_forward(false), kActivation);
}

}  // namespace
}  // namespace zpp::test
