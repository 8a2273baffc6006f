#include "model/registry.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace zpp::test {
namespace {

struct PlainConfig {
  int64_t vocab = 10, context = 20, width = 8, heads = 2;
  void fields(Fields& f) {
    f("vocab", vocab, "rows of the table", 1, 100)("context", context, "tokens", 1, 100);
    f("width", width, "channels", 1, 100)("heads", heads, "heads; divides width", 1, 100);
  }
  void check(std::string_view prefix, Problems& problems) const {
    if (width % heads != 0) problems.add(std::string(prefix) + ".heads", "does not divide width");
  }
};

class PlainModel final : public Model {
 public:
  PlainModel(const Scope& s, const PlainConfig& c) : Model(s) { (void)s.parameter("w", {c.width}); }
  Value loss(Tape&, const Batch&) override { return {}; }
  Value logits(Tape&, const Batch&) override { return {}; }
  double flops_per_token() const override { return 1; }
};

ZPP_REGISTER_MODEL("plain", PlainModel, PlainConfig);

TEST(Registry, FindsModelsByName) {
  ASSERT_NE(find_model("plain"), nullptr);
  EXPECT_EQ(find_model("plain")->name, "plain");
  EXPECT_EQ(find_model("Plain"), nullptr);
  ASSERT_EQ(registered_models().size(), 1u);
}

TEST(Registry, RefusesANameTwice) {
  EXPECT_THROW(register_model(model_entry<PlainModel, PlainConfig>("plain")), Error);
}

TEST(Registry, CheckGathersProblemsAndReportsFacts) {
  const ModelEntry& entry = *find_model("plain");
  Problems none;
  const auto facts = entry.check(R"({"name": "plain", "vocab": 7})", {.prefix = "model"}, none);
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(facts.vocab, 7);
  EXPECT_EQ(facts.context, 20);
  Problems several;
  entry.check(R"({"name": "plain", "vocab": 0, "widht": 3})", {.prefix = "model"}, several);
  ASSERT_EQ(several.lines().size(), 2u);
  EXPECT_NE(several.lines()[0].find("model.vocab"), std::string::npos);
  EXPECT_NE(several.lines()[1].find("model.width"), std::string::npos) << several.lines()[1];
  Problems crossed;
  entry.check(R"({"name": "plain", "heads": 3})", {.prefix = "model"}, crossed);
  EXPECT_EQ(crossed.lines(), std::vector<std::string>{"model.heads: does not divide width"});
}

TEST(Registry, ChecksAcrossFieldsAlsoWhenAnotherSectionHasProblems) {
  Problems problems;
  problems.add("train.steps", "is wrong");
  find_model("plain")->check(R"({"heads": 3})", {.prefix = "model"}, problems);
  EXPECT_EQ(problems.lines().size(), 2u);
}

TEST(Registry, CreatesWhatTheConfigurationSays) {
  ParameterTable table(DType::kF32);
  const auto model = find_model("plain")->create(Scope(table), R"({"name": "plain", "width": 6})");
  ASSERT_NE(table.find("w"), nullptr);
  EXPECT_EQ(table.find("w")->numel(), 6);
  ParameterTable other(DType::kF32);
  EXPECT_THROW(find_model("plain")->create(Scope(other), R"({"width": 0})"), Error);
}

TEST(Registry, ResolveFillsInDefaultsAndDocumentNamesKeys) {
  const auto resolved =
      nlohmann::json::parse(find_model("plain")->resolve(R"({"name": "plain", "width": 6})"));
  EXPECT_EQ(resolved, (nlohmann::json{{"vocab", 10}, {"context", 20}, {"width", 6}, {"heads", 2}}));
  EXPECT_NE(find_model("plain")->document("model").find("model.heads"), std::string::npos);
}

}  // namespace
}  // namespace zpp::test
