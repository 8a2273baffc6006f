#include "core/config.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/error.h"

namespace zpp {
namespace {

struct File {
  std::string path;
  std::optional<double> weight;
  void fields(Fields& f) {
    f("path", path, "where it is")("weight", weight, "share of the samples", 0.0, 100.0);
  }
};

struct Train {
  int64_t steps = 1000;
  double grad_clip = 1.0;
  bool shuffle = true;
  std::string recompute = "none";
  std::optional<int64_t> decay_steps;
  void fields(Fields& f) {
    f("steps", steps, "optimizer steps", 1, 1'000'000)("grad_clip", grad_clip,
                                                       "largest global norm", 0.0,
                                                       1e3)("shuffle", shuffle, "random order")(
        "recompute", recompute, "what backward runs again", {"none", "unit"})(
        "decay_steps", decay_steps, "steps of decay", 0, INT64_MAX);
  }
};

struct Optimizer {
  std::string name = "adamw";
  double lr = 3e-4;
  void fields(Fields& f) {
    f("name", name, "update rule", {"adamw", "sgd"})("lr", lr, "peak learning rate", 0.0, 10.0);
  }
};

struct Config {
  Train train;
  Optimizer optimizer;
  std::vector<File> data;
  std::vector<std::string> hosts;
  std::string model;
  void fields(Fields& f) {
    f.section("train", train, "the loop")
        .section("optimizer", optimizer, "the update")
        .json("model", model, "the network")
        .list("data", data, "files")("hosts", hosts, "machines");
    f.refused("zero", "needs several processes, which this build does not have");
  }
};

struct Model {
  int64_t layers = 2;
  void fields(Fields& f) { f("layers", layers, "blocks", 1, 100); }
};

Config parse(const std::string& text) { return parse_config<Config>(text, {.source = "x.json"}); }

std::string error_of(const std::string& text, const ParseOptions& options = {.source = "x.json"}) {
  try {
    parse_config<Config>(text, options);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::kInvalidArgument);
    return e.what();
  }
  return "no error";
}

TEST(Config, ReadsEveryKindOfField) {
  const Config c = parse(R"({
    // a comment
    "train": {"steps": 5, "grad_clip": 2, "shuffle": false, "recompute": "unit", "decay_steps": 7},
    "optimizer": {"lr": 1e-3},
    "model": {"name": "gpt", "eps": 1e-05, "list": [1, "a\n", null, true]},
    "data": [{"path": "a", "weight": 0.5}, {"path": "b"}],
    "hosts": ["h0", "h1"]
  })");
  EXPECT_EQ(c.train.steps, 5);
  EXPECT_EQ(c.train.grad_clip, 2.0);
  EXPECT_FALSE(c.train.shuffle);
  EXPECT_EQ(c.train.recompute, "unit");
  EXPECT_EQ(c.train.decay_steps, 7);
  EXPECT_EQ(c.optimizer.lr, 1e-3);
  EXPECT_EQ(c.optimizer.name, "adamw");
  EXPECT_EQ(c.model, R"({"name": "gpt", "eps": 1e-05, "list": [1, "a\n", null, true]})");
  ASSERT_EQ(c.data.size(), 2u);
  EXPECT_EQ(c.data[0].weight, 0.5);
  EXPECT_EQ(c.data[1].path, "b");
  EXPECT_FALSE(c.data[1].weight.has_value());
  EXPECT_EQ(c.hosts, (std::vector<std::string>{"h0", "h1"}));
}

TEST(Config, KeepsDefaultsOfAbsentKeysAndClearsOptionalsByNull) {
  Config c;
  c.train.decay_steps = 3;
  parse_fields(R"({"train": {"decay_steps": null}})", [&c](Fields& f) { c.fields(f); });
  EXPECT_EQ(c.train.steps, 1000);
  EXPECT_FALSE(c.train.decay_steps.has_value());
}

TEST(Config, AnOptionalWhoseValueIsRefusedBecomesAbsent) {
  Config c;
  c.train.decay_steps = 3;
  Problems problems;
  parse_fields(R"({"train": {"decay_steps": -1}, "data": [{"path": "a", "weight": 101}]})",
               [&c](Fields& f) { c.fields(f); }, ParseOptions{}, problems);
  EXPECT_EQ(problems.lines().size(), 2u);
  EXPECT_FALSE(c.train.decay_steps.has_value());
  EXPECT_FALSE(c.data.at(0).weight.has_value());
}

TEST(Config, AcceptsIntegersWrittenAsExactFloats) {
  EXPECT_EQ(parse(R"({"train": {"steps": 1e3}})").train.steps, 1000);
  EXPECT_EQ(parse(R"({"train": {"steps": 12.0}})").train.steps, 12);
  EXPECT_EQ(parse(R"({"train": {"decay_steps": 9223372036854775807}})").train.decay_steps,
            INT64_MAX);
}

struct Broken {
  const char* text;
  const char* message;
};

TEST(Config, EachBrokenTextHasItsOwnMessage) {
  const std::vector<Broken> cases = {
      {R"({"train": {"stesp": 1}})",
       R"(x.json: train.stesp: unknown key; did you mean "train.steps"?)"},
      {R"({"trian": {"steps": 1}})", R"(x.json: trian: unknown key; did you mean "train"?)"},
      {R"({"data": [{"path": "a"}, {"wieght": 1}]})",
       R"(x.json: data.1.wieght: unknown key; did you mean "data.1.weight"?)"},
      {R"({"train": {"lr": 1}})", R"(x.json: train.lr: unknown key; did you mean "optimizer.lr"?)"},
      {R"({"lr": 1})", R"(x.json: lr: unknown key; did you mean "optimizer.lr"?)"},
      {R"({"optimizer": {"momentum_decay": 1}})",
       "x.json: optimizer.momentum_decay: unknown key; valid keys here: name, lr"},
      {R"({"train": {"steps": "many"}})",
       R"(x.json: train.steps: expected an integer from 1 to 1000000, found the text "many")"},
      {R"({"train": {"steps": 0}})",
       "x.json: train.steps: expected an integer from 1 to 1000000, found 0"},
      {R"({"train": {"steps": 1.5}})",
       "x.json: train.steps: expected an integer from 1 to 1000000, found 1.5"},
      {R"({"train": {"steps": 99999999999999999999}})",
       "x.json: train.steps: expected an integer from 1 to 1000000, found 99999999999999999999, "
       "which does not fit 64 bits"},
      {R"({"train": {"steps": null}})",
       "x.json: train.steps: expected an integer from 1 to 1000000, found null"},
      {R"({"train": {"decay_steps": false}})",
       "x.json: train.decay_steps: expected an integer from 0 to 9223372036854775807, found false"},
      {R"({"train": {"grad_clip": "NaN"}})",
       R"(x.json: train.grad_clip: expected a number from 0 to 1000, found the text "NaN")"},
      {R"({"train": {"grad_clip": -0.5}})",
       "x.json: train.grad_clip: expected a number from 0 to 1000, found -0.5"},
      {R"({"train": {"shuffle": 1}})", "x.json: train.shuffle: expected true or false, found 1"},
      {R"({"train": {"recompute": "units"}})",
       "x.json: train.recompute: expected one of none, unit, found \"units\"; did you mean "
       "\"unit\"?"},
      {R"({"train": {"recompute": 3}})",
       "x.json: train.recompute: expected one of none, unit, found 3"},
      {R"({"train": [1]})", "x.json: train: expected an object, found a list of 1"},
      {R"({"data": {"path": "a"}})", "x.json: data: expected a list of objects, found an object"},
      {R"({"data": ["a"]})", R"(x.json: data.0: expected an object, found the text "a")"},
      {R"({"hosts": ["a", 2]})", "x.json: hosts.1: expected a text, found 2"},
      {R"({"model": "gpt"})", R"(x.json: model: expected an object, found the text "gpt")"},
      {R"({"zero": {}})", "x.json: zero: needs several processes, which this build does not have"},
      {R"({"train": {"steps": 1, "steps": 2}})",
       "x.json: train.steps: given twice in the same object"},
      {R"([1])", "x.json: expected an object, found a list of 1"},
      {"{\"train\": {\n  \"steps\": 1,\n}}",
       "x.json: line 3, column 1: a comma before a closing brace or bracket: remove it"},
      {"{\"train\": {\n  \"grad_clip\": NaN}}",
       "x.json: line 2, column 16: 'NaN' is no JSON value: there is no NaN or Infinity in JSON"},
      {R"({"train": {"grad_clip": 1e999}})",
       "x.json: line 1, column 25: the number 1e999 is too large"},
      {R"({"train": )",
       "x.json: line 1, column 11: the text ends too early: a value, closing brace or bracket is "
       "missing"},
      {"",
       "x.json: line 1, column 1: the text ends too early: a value, closing brace or bracket is "
       "missing"},
      {R"({"train": True})", "x.json: line 1, column 11: 'True' is written true"},
      {R"({train: 1})",
       "x.json: line 1, column 2: 'train' is unexpected here (names and text are written in double "
       "quotes)"},
      {"{\"hosts\": [\"\xff\"]}", "x.json: line 1, column 13: a string is not valid UTF-8"},
  };
  for (const Broken& c : cases) EXPECT_EQ(error_of(c.text), c.message) << c.text;
}

TEST(Config, ListsAllProblemsAtOnceInTextOrderOfSections) {
  EXPECT_EQ(error_of(R"({"optimizer": {"lr": -1, "nam": "x"}, "train": {"steps": 0}, "extra": 1})"),
            "x.json: 4 problems\n"
            "  train.steps: expected an integer from 1 to 1000000, found 0\n"
            "  optimizer.lr: expected a number from 0 to 10, found -1\n"
            "  optimizer.nam: unknown key; did you mean \"optimizer.name\"?\n"
            "  extra: unknown key; valid keys here: train, optimizer, model, data, hosts");
}

TEST(Config, DeepNestingIsAnErrorNotACrash) {
  EXPECT_EQ(error_of(std::string(200'000, '[')),
            "x.json: lists and objects are nested more than 100 levels deep");
  EXPECT_NE(error_of(std::string(200'000, '{')).find("line 1, column 2"), std::string::npos);
}

TEST(Config, APartParsedElsewhereReportsIntoTheSameListAndIsKnownToSuggestions) {
  Problems problems;
  const ParseOptions options{.source = "x.json"};
  const Config c = parse_config<Config>(
      R"({"train": {"layers": 3}, "model": {"name": "m", "layres": 3, "lr": 1}})", options,
      problems);
  const Model m = parse_config<Model>(c.model, {.prefix = "model", .ignored = {"name"}}, problems);
  problems.add("train.steps", "does not fit the data");
  EXPECT_EQ(m.layers, 2);
  EXPECT_EQ(problems.lines(),
            (std::vector<std::string>{"train.layers: unknown key; did you mean \"model.layers\"?",
                                      "model.layres: unknown key; did you mean \"model.layers\"?",
                                      "model.lr: unknown key; did you mean \"optimizer.lr\"?",
                                      "train.steps: does not fit the data"}));
}

TEST(Config, DumpReadsBackAsTheSameConfigInOrderOfDeclaration) {
  Config c = parse(
      R"({"train": {"steps": 7, "grad_clip": 0.1}, "data": [{"path": "a\"\u0001", "weight": 1}],
                      "model": {"name": "gpt", "wide": [1, 2]}, "hosts": ["h"]})");
  const std::string text = dump_config(c);
  EXPECT_EQ(text, R"({
  "train": {
    "steps": 7,
    "grad_clip": 0.1,
    "shuffle": true,
    "recompute": "none",
    "decay_steps": null
  },
  "optimizer": {
    "name": "adamw",
    "lr": 0.0003
  },
  "model": {
    "name": "gpt",
    "wide": [
      1,
      2
    ]
  },
  "data": [
    {
      "path": "a\"\u0001",
      "weight": 1
    }
  ],
  "hosts": [
    "h"
  ]
}
)");
  EXPECT_EQ(dump_config(parse(text)), text);
}

TEST(Config, DumpKeepsDoublesExactly) {
  Config c;
  c.optimizer.lr = 0.1 + 0.2;
  EXPECT_EQ(parse(dump_config(c)).optimizer.lr, 0.1 + 0.2);
}

TEST(Config, DocumentsEveryKeyWithTypeBoundsAndDefault) {
  const std::string text = document_config<Config>();
  for (const char* part : {
           "train (section): the loop\n",
           "  train.steps\n      optimizer steps\n      integer, 1 to 1000000, default 1000\n",
           "  train.decay_steps\n      steps of decay\n      integer, at least 0 or null, default "
           "null\n",
           "one of none, unit, default \"none\"",
           "model (object): the network",
           "  data.N.weight\n      share of the samples\n      number, 0 to 100 or null, default "
           "null\n",
           "zero (not available): needs several processes",
       })
    EXPECT_NE(text.find(part), std::string::npos) << part << "\nnot in\n" << text;
  EXPECT_NE(document_config<Model>("model").find("  model.layers\n"), std::string::npos);
}

TEST(Config, OverridesReplaceAddAndAppend) {
  std::string text = R"({"train": {"steps": 1}, "data": [{"path": "a"}]})";
  for (const char* assignment :
       {"train.steps=100", "optimizer.lr=1e-2", "optimizer.name=sgd", "data.0.path=b c",
        "data.1.path=\"d\"", "model.layers=4", "hosts=[\"x\"]", "train.decay_steps=null"})
    text = apply_override(text, assignment);
  const Config c = parse(text);
  EXPECT_EQ(c.train.steps, 100);
  EXPECT_EQ(c.optimizer.lr, 1e-2);
  EXPECT_EQ(c.optimizer.name, "sgd");
  ASSERT_EQ(c.data.size(), 2u);
  EXPECT_EQ(c.data[0].path, "b c");
  EXPECT_EQ(c.data[1].path, "d");
  EXPECT_EQ(c.model, R"({"layers": 4})");
  EXPECT_EQ(c.hosts, std::vector<std::string>{"x"});
  EXPECT_EQ(parse(apply_override("{}", "data.0.path=only")).data.at(0).path, "only");
}

TEST(Config, MessagesSayWhenAValueCameFromSet) {
  const auto with = [](const std::string& assignment) {
    return error_of(apply_override("{}", assignment),
                    {.source = "x.json", .overrides = {assignment}});
  };
  EXPECT_EQ(with("train.steps=none"),
            "x.json: train.steps: expected an integer from 1 to 1000000, found the text \"none\" "
            "(from --set train.steps=none)");
  EXPECT_EQ(with("trian.steps=1"),
            "x.json: trian: unknown key; did you mean \"train\"? (from --set trian.steps=1)");
  EXPECT_EQ(error_of(R"({"train": {"steps": 0}})",
                     {.source = "x.json", .overrides = {"train.shuffle=true"}}),
            "x.json: train.steps: expected an integer from 1 to 1000000, found 0");
}

TEST(Config, OverridesThatCannotApplyAreErrors) {
  const auto error = [](const std::string& text, const std::string& assignment) -> std::string {
    try {
      apply_override(text, assignment, "x.json");
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_EQ(error("{}", "train.steps"), "--set: expected path.key=value, found \"train.steps\"");
  EXPECT_EQ(error("{}", "=1"), "--set: expected path.key=value, found \"=1\"");
  EXPECT_EQ(error("{}", "train..steps=1"),
            "--set train..steps=1: there is no \"\" in train, which is null");
  EXPECT_EQ(error(R"({"train": 5})", "train.steps=1"),
            "--set train.steps=1: there is no \"steps\" in train, which is 5");
  EXPECT_EQ(error(R"({"data": []})", "data.3.path=1"),
            "--set data.3.path=1: there is no \"3\" in data, which is a list of 0");
  EXPECT_EQ(error("{,", "a=1").substr(0, 26), "x.json: line 1, column 2: ");
}

TEST(Config, RandomBytesNeverCrashTheParser) {
  uint32_t state = 1;
  const std::string alphabet = "{}[]\",:0123456789.eE+-truefalsn /*\\\n\xc3\xff\x01 ";
  for (int i = 0; i < 20'000; ++i) {
    std::string text;
    for (int n = 0; n < 24; ++n) {
      state = state * 1664525u + 1013904223u;
      text += alphabet[(state >> 8) % alphabet.size()];
    }
    try {
      parse(text);
    } catch (const Error&) {
    }
  }
}

}  // namespace
}  // namespace zpp
