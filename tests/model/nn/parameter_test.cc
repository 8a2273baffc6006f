#include "model/nn/parameter.h"

#include <gtest/gtest.h>

#include "kernels/elementwise.h"
#include "model/nn/resident.h"
#include "tests/model/grad_check.h"

namespace zpp::test {
namespace {

class ParameterTest : public testing::Test {
 protected:
  ParameterTest() : runtime_({.device = {}, .threads = 1}) {}

  std::vector<double> values(const View& view) { return read(runtime_.compute(), view); }

  Runtime runtime_;
};

TEST_F(ParameterTest, UnitsStartEachParameterOnTheAlignment) {
  ParameterTable table(DType::kF32);
  const Scope s(table);
  const Parameter &a = s.parameter("a", {3, 5}), &b = s.parameter("b", {64}),
                  &c = s.parameter("c", {1});
  table.root().layout(64);
  EXPECT_EQ(a.offset(), 0);
  EXPECT_EQ(b.offset(), 64);
  EXPECT_EQ(c.offset(), 128);
  EXPECT_EQ(table.root().flat_numel(), 192);
  EXPECT_EQ(table.numel(), 15 + 64 + 1);
}

TEST_F(ParameterTest, NamesArePathsAndUnitsArePlaces) {
  ParameterTable table(DType::kF32);
  const Scope s(table);
  // Ten and one share a beginning; a scope made before its unit finds it later.
  const Scope one = s / "blocks" / 1, ten = s / "blocks" / 10, inner = one / "mlp";
  ParameterUnit &unit_one = one.unit(), &unit_ten = ten.unit();
  const Parameter& deep = inner.parameter("weight", {2});
  EXPECT_EQ(deep.name(), "blocks.1.mlp.weight");
  EXPECT_EQ(&deep.unit(), &unit_one);
  EXPECT_EQ(&ten.parameter("weight", {2}).unit(), &unit_ten);
  EXPECT_EQ(&s.parameter("head", {2}).unit(), &table.root());
  EXPECT_EQ(&(s / "blocks").parameter("scale", {2}).unit(), &table.root());
  EXPECT_EQ(&one.unit(), &unit_one) << "asking again gives the same unit";
  EXPECT_EQ(table.find("blocks.1.mlp.weight"), &deep);
  EXPECT_EQ(table.find("blocks.2.mlp.weight"), nullptr);
}

TEST_F(ParameterTest, AScopeNamedRootIsNotTheRootUnit) {
  ParameterTable table(DType::kF32);
  const Scope scope = Scope(table) / "root";
  EXPECT_NE(&scope.unit(), &table.root());
}

TEST_F(ParameterTest, ANameCanBeUsedOnce) {
  ParameterTable table(DType::kF32);
  const Scope s(table);
  (void)s.parameter("w", {2});
  EXPECT_THROW((void)s.parameter("w", {2}), Error);
}

TEST_F(ParameterTest, AViewTakenBeforeAReleaseIsRefusedByKernels) {
  ParameterTable table(DType::kF32);
  Parameter& w = Scope(table).parameter("w", {4});
  const ResidentHooks hooks(table, runtime_);
  const View before = w.view();
  const Tensor out = runtime_.tensor({4}, DType::kF32);
  kernels::copy(runtime_.compute(), before, {out.view()});
  table.root().bind_weights({});
  EXPECT_THROW((void)w.view(), Error);
  table.root().bind_weights(hooks.weights(0));
  try {
    kernels::copy(runtime_.compute(), before, {out.view()});
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::kFailedPrecondition) << e.what();
  }
  kernels::copy(runtime_.compute(), w.view(), {out.view()});
}

TEST_F(ParameterTest, OnlyFittingBuffersAreBound) {
  ParameterTable table(DType::kBF16);
  (void)Scope(table).parameter("w", {4});
  ParameterUnit& unit = table.root();
  unit.layout(64);
  const Tensor weights = runtime_.tensor({64}, DType::kBF16),
               grads = runtime_.tensor({64}, DType::kF32);
  unit.bind_weights(weights.view());
  unit.bind_grads(grads.view());
  EXPECT_THROW(unit.bind_weights(grads.view()), Error);
  EXPECT_THROW(unit.bind_grads(weights.view()), Error);
  EXPECT_THROW(unit.bind_weights(weights.view().slice(0, 0, 4)), Error);
}

TEST_F(ParameterTest, TheFirstGradientOfAStepReplacesTheLast) {
  ParameterTable table(DType::kF32);
  Parameter& w = Scope(table).parameter("w", {4});
  EXPECT_THROW((void)w.grad(), Error) << "nothing is bound";
  const ResidentHooks hooks(table, runtime_);
  EXPECT_FALSE(w.grad().accumulate);
  EXPECT_TRUE(w.grad().accumulate);
  table.root().restart_grads();
  EXPECT_FALSE(w.grad().accumulate);
}

TEST_F(ParameterTest, FinishingZeroesWhatNobodyWrote) {
  ParameterTable table(DType::kF32);
  Parameter& a = Scope(table).parameter("a", {3});
  (void)Scope(table).parameter("b", {5});
  const ResidentHooks hooks(table, runtime_, 8);
  ParameterUnit& unit = table.root();
  kernels::fill(runtime_.compute(), unit.grads(), 9.0);
  kernels::fill(runtime_.compute(), a.grad().view, 2.0);
  unit.finish_grads(runtime_.compute());
  std::vector<double> want(16, 0.0);
  want[0] = want[1] = want[2] = 2.0;
  EXPECT_EQ(values(unit.grads()), want);
}

TEST_F(ParameterTest, InitialWeightsDependOnNameAndSeedOnly) {
  const auto initial = [this](bool other_first, int64_t begin, int64_t count, uint64_t seed) {
    ParameterTable table(DType::kF32);
    if (other_first) (void)(Scope(table) / "x").parameter("other", {7});
    const Parameter& w = Scope(table).parameter("w", {9, 5}, {Init::kNormal, 0.5f});
    const Tensor out = runtime_.tensor({count}, DType::kF32);
    fill_initial(runtime_.compute(), w, begin, out.view(), seed);
    return values(out.view());
  };
  const std::vector<double> whole = initial(false, 0, 45, 1);
  EXPECT_EQ(initial(true, 0, 45, 1), whole);
  EXPECT_NE(initial(false, 0, 45, 2), whole);
  const std::vector<double> part = initial(true, 13, 20, 1);
  EXPECT_EQ(part, std::vector<double>(whole.begin() + 13, whole.begin() + 33));
  double squares = 0;
  for (double v : whole) squares += v * v;
  EXPECT_NEAR(squares / 45, 0.25, 0.15);
}

TEST_F(ParameterTest, ZerosAndOnesAreWhatTheySay) {
  ParameterTable table(DType::kBF16);
  const Parameter &zeros = Scope(table).parameter("z", {3}, {Init::kZeros}),
                  &ones = Scope(table).parameter("o", {3}, {Init::kOnes});
  const Tensor out = runtime_.tensor({3}, DType::kBF16);
  fill_initial(runtime_.compute(), zeros, 0, out.view(), 1);
  EXPECT_EQ(values(out.view()), (std::vector<double>{0, 0, 0}));
  fill_initial(runtime_.compute(), ones, 0, out.view(), 1);
  EXPECT_EQ(values(out.view()), (std::vector<double>{1, 1, 1}));
}

}  // namespace
}  // namespace zpp::test
