#include "model/autograd/tape.h"

#include <gtest/gtest.h>

#include "kernels/elementwise.h"
#include "model/nn/resident.h"
#include "tests/model/grad_check.h"

namespace zpp::test {
namespace {

class TapeTest : public testing::Test {
 protected:
  TapeTest()
      : runtime_({.device = {}, .threads = 1}), table_(DType::kF32), hooks_(table_, runtime_) {}

  Tensor tensor(const std::vector<double>& values) {
    Tensor t = runtime_.tensor({static_cast<int64_t>(values.size())}, DType::kF32);
    write(runtime_.compute(), values, t.view());
    return t;
  }
  std::vector<double> values(const Tensor& t) { return read(runtime_.compute(), t.view()); }
  std::unique_ptr<Tape> tape(const TapeOptions& options = {}) {
    return std::make_unique<Tape>(runtime_.pool(), runtime_.compute(), hooks_, options);
  }

  /// y = factor * x.
  static Value scale(const Value& x, double factor) {
    Tape& tape = x.tape();
    Tensor y = tape.empty(x.shape(), x.dtype());
    kernels::copy(tape.stream(), x.view(), {y.view()}, factor);
    return tape.record("scale", std::move(y), [to = x.slot(), factor](Backward& b) {
      if (const Grad dx = b.grad(to)) kernels::copy(b.stream(), b.dy(), dx, factor);
    });
  }
  static Value sum(const Value& a, const Value& b) {
    Tape& tape = a.tape();
    Tensor y = tape.empty(a.shape(), a.dtype());
    kernels::add(tape.stream(), a.view(), b.view(), y.view());
    return tape.record("sum", std::move(y), [to_a = a.slot(), to_b = b.slot()](Backward& back) {
      back.pass(to_a, back.dy_tensor());
      back.pass(to_b, back.dy_tensor());
    });
  }

  Runtime runtime_;
  ParameterTable table_;
  ResidentHooks hooks_;
};

TEST_F(TapeTest, FollowsAChainBackwards) {
  const auto t = tape();
  const Tensor dx = tensor({0, 0});
  const Value x = t->leaf(tensor({1, 2}), {dx.view()});
  const Value y = scale(scale(x, 3), 5);
  t->backward(y, tensor({1, 10}));
  EXPECT_EQ(values(y.tensor()), (std::vector<double>{15, 30}));
  EXPECT_EQ(values(dx), (std::vector<double>{15, 150}));
}

TEST_F(TapeTest, ScalesTheGradientOfALoss) {
  const auto t = tape();
  const Tensor dx = tensor({0});
  const Value loss = scale(t->leaf(tensor({1}), {dx.view()}), 3);
  t->backward(loss, 0.25);
  EXPECT_EQ(values(dx), (std::vector<double>{0.75}));
}

TEST_F(TapeTest, AddsTheGradientsOfSeveralUses) {
  const auto t = tape();
  const Tensor dx = tensor({0});
  const Value x = t->leaf(tensor({1}), {dx.view()});
  const Value h = scale(x, 2);
  t->backward(sum(sum(scale(h, 3), h), scale(x, 100)), 1.0);
  EXPECT_EQ(values(dx), (std::vector<double>{2 * 3 + 2 + 100}));
}

TEST_F(TapeTest, ALeafMayAccumulateOrStartAgain) {
  for (const bool accumulate : {false, true}) {
    const auto t = tape();
    const Tensor dx = tensor({7});
    t->backward(scale(t->leaf(tensor({1}), {dx.view(), accumulate}), 2), 1.0);
    EXPECT_EQ(values(dx), (std::vector<double>{accumulate ? 9.0 : 2.0}));
  }
}

TEST_F(TapeTest, ALeafThatNothingUsesGetsZeros) {
  const auto t = tape();
  const Tensor dx = tensor({7}), unused = tensor({7}), kept = tensor({7});
  const Value x = t->leaf(tensor({1}), {dx.view()});
  (void)t->leaf(tensor({1}), {unused.view()});
  (void)t->leaf(tensor({1}), {kept.view(), true});
  t->backward(scale(x, 2), 1.0);
  EXPECT_EQ(values(unused), (std::vector<double>{0}));
  EXPECT_EQ(values(kept), (std::vector<double>{7}));
}

TEST_F(TapeTest, MarkersRunInReverseOrderAmongTheNodes) {
  const auto t = tape();
  std::vector<std::string> seen;
  const Tensor dx = tensor({0});
  const auto traced = [&](const Value& x, const char* name) {
    return t->record(name, x.tensor(), [&seen, name, to = x.slot()](Backward& b) {
      seen.push_back(name);
      b.pass(to, b.dy_tensor());
    });
  };
  t->record_marker("first", [&] { seen.push_back("first"); });
  const Value a = traced(t->leaf(tensor({1}), {dx.view()}), "a");
  t->record_marker("second", [&] { seen.push_back("second"); });
  const Value b = traced(a, "b");
  t->record_marker("third", [&] { seen.push_back("third"); });
  t->backward(b, 1.0);
  EXPECT_EQ(seen, (std::vector<std::string>{"third", "b", "second", "a", "first"}));
  EXPECT_EQ(t->nodes(), 0u);
}

TEST_F(TapeTest, MarkersRunAlsoWhereNoGradientFlows) {
  const auto t = tape();
  int runs = 0;
  const Tensor dx = tensor({0});
  t->record_marker("before", [&] { ++runs; });
  (void)scale(t->constant(tensor({1})), 2);
  t->record_marker("between", [&] { ++runs; });
  t->backward(scale(t->leaf(tensor({1}), {dx.view()}), 2), 1.0);
  EXPECT_EQ(runs, 2);
}

TEST_F(TapeTest, NodesWithoutGradientAreSkipped) {
  const auto t = tape();
  const Tensor dx = tensor({0});
  const Value x = t->leaf(tensor({1}), {dx.view()});
  (void)t->record("unused", tensor({1}),
                  [](Backward&) { FAIL() << "nobody asked for this gradient"; });
  t->backward(scale(x, 2), 1.0);
}

TEST_F(TapeTest, ActivationsAreFreedAsTheBackwardPassGoesBy) {
  constexpr int64_t kElements = 1 << 16, kBytes = kElements * 4;
  const auto t = tape();
  const Tensor dx = tensor(std::vector<double>(kElements));
  std::vector<int64_t> live;
  const auto mark = [&] {
    t->record_marker("live", [&] { live.push_back(runtime_.pool().stats().live_bytes); });
  };
  Value y = t->leaf(tensor(std::vector<double>(kElements, 1.0)), {dx.view()});
  for (int i = 0; i < 4; ++i) {
    mark();
    y = t->record("keep", scale(y, 2.0).tensor(),
                  [x = y](Backward& b) { b.pass(x.slot(), b.dy_tensor()); });
  }
  t->backward(y, tensor(std::vector<double>(kElements, 1.0)));
  ASSERT_EQ(live.size(), 4u);
  // Each node keeps its input: one buffer less after each, the gradient being handed on and not
  // copied.
  for (size_t i = 1; i < live.size(); ++i) EXPECT_EQ(live[i - 1] - live[i], kBytes);
}

TEST_F(TapeTest, ASharedGradientIsCopiedOnlyWhenAddedTo) {
  const auto t = tape();
  const Tensor da = tensor({0}), db = tensor({0});
  const Value a = scale(t->leaf(tensor({1}), {da.view()}), 1),
              b = scale(t->leaf(tensor({1}), {db.view()}), 1);
  const void *seen_a = nullptr, *seen_b = nullptr;
  const auto watch = [&](const Value& x, const void*& where) {
    return t->record("watch", x.tensor(), [&where, to = x.slot()](Backward& back) {
      where = back.dy().data;
      back.pass(to, back.dy_tensor());
    });
  };
  const Value wa = watch(a, seen_a), wb = watch(b, seen_b);
  t->backward(sum(wa, sum(wa, wb)), 1.0);
  EXPECT_NE(seen_a, seen_b) << "a's gradient is 2, b's is 1: they cannot share";
  EXPECT_EQ(values(da), (std::vector<double>{2}));
  EXPECT_EQ(values(db), (std::vector<double>{1}));
}

TEST_F(TapeTest, NothingIsKeptInEvaluation) {
  const auto t = tape({.training = false});
  const Value y = scale(t->leaf(tensor({1}), {}), 2);
  t->record_marker("never", [] { FAIL(); });
  EXPECT_EQ(t->nodes(), 0u);
  EXPECT_FALSE(y.needs_grad());
  EXPECT_THROW(t->backward(y, 1.0), Error);
}

TEST_F(TapeTest, ADeferredLossIsReadableAfterTheBackwardPassOnly) {
  const auto t = tape();
  Tensor loss = tensor({0});
  const Tensor dx = tensor({0});
  const Value x = t->leaf(tensor({1}), {dx.view()});
  const Value y = t->record_deferred("late", loss, [loss, to = x.slot()](Backward& b) {
    kernels::fill(b.stream(), loss.view(), 42.0);
    b.pass(to, b.dy_tensor());
  });
  try {
    (void)y.view();
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::kFailedPrecondition);
    EXPECT_NE(std::string(e.what()).find("late"), std::string::npos);
  }
  t->backward(y, 1.0);
  EXPECT_EQ(values(y.tensor()), (std::vector<double>{42}));
}

TEST_F(TapeTest, RefusesWhatHasNoDerivative) {
  const auto t = tape();
  const Tensor dx = tensor({0, 0});
  EXPECT_THROW(t->backward(t->constant(tensor({1})), 1.0), Error);
  EXPECT_THROW(t->backward(scale(t->leaf(tensor({1, 2}), {dx.view()}), 2), 1.0), Error)
      << "not a scalar";
  EXPECT_THROW((void)Value().tape(), Error);
}

TEST_F(TapeTest, RandomStreamsFollowSampleStepAndPosition) {
  const auto key = [this](const TapeOptions& options, int before) {
    const auto t = tape(options);
    for (int i = 0; i < before; ++i) (void)t->next_rng("other", 8);
    return t->next_rng("dropout", 4 * options.samples);
  };
  const RngKey whole = key({.seed = 1, .step = 2, .first_sample = 0, .samples = 6}, 0);
  const RngKey part = key({.seed = 1, .step = 2, .first_sample = 4, .samples = 2}, 0);
  EXPECT_EQ(part.name_hash, whole.name_hash);
  EXPECT_EQ(part.offset, 16u) << "sample 4 of 4 elements each";
  EXPECT_NE(key({.seed = 1, .step = 3, .samples = 6}, 0).name_hash, whole.name_hash);
  EXPECT_NE(key({.seed = 1, .step = 2, .samples = 6}, 1).name_hash, whole.name_hash);
}

}  // namespace
}  // namespace zpp::test
