#include "parallel/train_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "core/files.h"
#include "core/json_tree.h"

namespace zpp {
namespace {

using testing::HasSubstr;

constexpr const char* kGood = R"({
  "run": {"name": "test"},
  "model": {"name": "gpt", "layers": 1, "width": 32, "heads": 2, "context": 16, "vocab": 257},
  "data": {"train": [{"path": "t.bin"}], "val": [{"path": "v.bin"}]},
  "train": {"steps": 100, "global_batch": 8, "micro_batch": 2, "eval_every": 10},
  "schedule": {"warmup_steps": 10}
})";

/// The error of the good configuration after `change`, empty if there is none.
std::string error_of(const std::string& text, const std::vector<std::string>& changes) {
  try {
    parse_train_config(text, "test.json", changes);
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    return error.what();
  }
}

TEST(TrainConfig, FillsInDefaults) {
  const TrainConfig config = parse_train_config(kGood, "test.json");
  EXPECT_EQ(config.run.dir, "runs/test");
  EXPECT_EQ(config.optimizer.beta2, 0.95);
  EXPECT_EQ(config.micro_batches(), 4);
  EXPECT_EQ(config.tokens_per_step(), 8 * 16);
  EXPECT_EQ(config.facts.vocab, 257);
  EXPECT_EQ(config.compute(), DType::kF32);
  EXPECT_THAT(config.model, HasSubstr("\"norm_eps\""));
}

TEST(TrainConfig, AMicroBatchIsTheWholeBatchUnlessGiven) {
  const TrainConfig config = parse_train_config(kGood, "test.json", {"train.micro_batch=null"});
  EXPECT_EQ(config.micro_batch(), 8);
}

TEST(TrainConfig, TheResolvedConfigurationReadsBackTheSame) {
  TrainConfig config = parse_train_config(kGood, "test.json");
  config.build = {"1.2.3", "abc"};
  const std::string text = dump_config(config);
  const TrainConfig again = parse_train_config(text, "again.json");
  EXPECT_EQ(dump_config(again), text);
}

struct Broken {
  std::vector<std::string> changes;
  std::string message;
};

// Each with its own message; data files that are broken are in train_data_test.cc.
const std::vector<Broken>& broken_configs() {
  static const std::vector<Broken> all = {
      {{"train.steps=0"}, "train.steps: expected an integer from 1"},
      {{"train.steps=many"}, "train.steps: expected an integer"},
      {{"train.steps=1.5"}, "found 1.5"},
      {{"train.global_batch=7"}, "train.micro_batch: 2 does not divide train.global_batch"},
      {{"train.micro_batch=0"}, "train.micro_batch: expected an integer from 1"},
      {{"train.micro_batch=3"}, "train.micro_batch: 3 does not divide train.global_batch"},
      {{"train.recompute=all"}, "train.recompute: expected one of none, unit"},
      {{"train.max_bad_steps=0"}, "train.max_bad_steps: expected an integer from 1"},
      {{"train.grad_clip=-1"}, "train.grad_clip: expected a number from 0"},
      {{"schedule.warmup_steps=100"}, "schedule.warmup_steps: 100 is not less than train.steps"},
      {{"optimizer.eps=0"}, "optimizer.eps: expected a number from 1e-30"},
      {{"schedule.name=cosin"}, "did you mean \"cosine\"?"},
      {{"schedule.min_lr=0.5"}, "schedule.min_lr: 0.5 is more than optimizer.lr"},
      {{"schedule.decay_steps=5"}, "the decay ends at step 5, within the 10 steps of warm-up"},
      {{"schedule.name=wsd", "schedule.decay_steps=95"}, "95 is more than the 90 steps after"},
      {{"schedule.name=constant", "schedule.decay_steps=50"}, "no meaning for the constant"},
      {{"optimizer.name=adam"}, "did you mean \"adamw\"?"},
      {{"optimizer.beta1=1.0"}, "optimizer.beta1: expected a number from 0 to 0.999999"},
      {{"optimizer.lr=\"3e-4\""}, "optimizer.lr: expected a number"},
      {{"precision.compute=f16"}, "f16 needs a GPU"},
      {{"precision.loss_scale=1024"}, "only f16 needs a loss scale"},
      {{"precision.compute=fp32"}, "did you mean \"f32\"?"},
      {{"run.device=cuda"}, "run.device: this build computes on the cpu only"},
      {{"run.name=a/b"}, "run.name: expected the name of a folder"},
      {{"run.name=.."}, "run.name: expected the name of a folder"},
      {{"run.seed=-1"}, "run.seed: expected an integer from 0"},
      {{"data.train=[]"}, "data.train: expected a list of files"},
      {{"data.train=t.bin"}, "data.train: expected a list of objects"},
      {{"data.val=[]"}, "data.val: empty, but train.eval_every is 10"},
      {{"data.train.0.format=llm"}, "did you mean \"llmc\"?"},
      {{"model.name=gtp"}, "did you mean \"gpt\"?"},
      {{"model.name=null"}, "model.name: expected one of"},
      {{"model=5"}, "model: expected an object, found 5"},
      {{"model.heads=3"}, "model.heads: is 3 but should divide width"},
      {{"model.width=0"}, "model.width: expected an integer from 1"},
      {{"model.vocab=8", "sample.prompt=z"}, "sample.prompt: its byte 122 is no token"},
      {{"sample.prompt="}, "sample.prompt: expected at least one character"},
      {{"zero.preset=zero4"}, "zero.preset: expected one of"},
      {{"zero.preset=zero1", "zero.shard.params=world"}, "contradicts preset zero1"},
      {{"zero.preset=custom"}, "zero.shard.params: missing"},
      {{"zero.preset=custom", "zero.shard.params=nodes", "zero.shard.grads=world",
        "zero.shard.optimizer=world"},
       "zero.shard.params: expected self, node, world"},
      {{"zero.replica=rack"}, "zero.replica: expected"},
      {{"zero.weights.wire=int9"}, "zero.weights.wire: expected"},
      {{"zero.grads.block_inter=100"}, "zero.grads.block_inter: expected a multiple of 32"},
      {{"launch.ranks_per_node=0"}, "launch.ranks_per_node: expected an integer from 1"},
      {{"launch.nodes=2", "launch.hosts=[\"a\"]"}, "launch.nodes: pretends nodes on one machine"},
      {{"launch.levels=2y2"}, "launch.levels: expected sizes like"},
      {{"launch.hosts=[\"-oProxyCommand=x\"]"}, "launch.hosts: expected names of machines"},
      {{"checkpoint.dir=x"}, "checkpoint: this build does not write checkpoints"},
      {{"log.tensorboard=true"}, "log.tensorboard: this build writes metrics.jsonl only"},
      {{"log.trace_steps=[1]"}, "log.trace_steps: this build does not record traces"},
      {{"train=5"}, "train: expected an object, found 5"},
  };
  return all;
}

TEST(TrainConfig, EveryBrokenConfigurationHasItsOwnMessage) {
  std::set<std::string> seen;
  for (const Broken& broken : broken_configs()) {
    const std::string message = error_of(kGood, broken.changes);
    EXPECT_THAT(message, HasSubstr(broken.message)) << broken.changes.front();
    EXPECT_THAT(message, testing::StartsWith("test.json: ")) << broken.changes.front();
    EXPECT_TRUE(seen.insert(message).second) << message;
  }
  EXPECT_GE(seen.size(), 30u);
}

TEST(TrainConfig, TextThatIsNoConfigurationIsRefusedOnce) {
  EXPECT_THAT(error_of("", {}), HasSubstr("test.json: line 1"));
  EXPECT_THAT(error_of("{\n\"run\": {,}}", {}), HasSubstr("line 2, column 9"));
  EXPECT_THAT(error_of("[1, 2]", {}), HasSubstr("expected an object, found a list of 2"));
  const std::string twice = R"({"run": {}, "run": {}})";
  EXPECT_THAT(error_of(twice, {}), HasSubstr("run: given twice"));
  EXPECT_THAT(error_of("{}", {}), HasSubstr("model: missing"));
}

TEST(TrainConfig, AMisspeltKeyIsCaughtAtEveryLevelWithTheNearestValidOne) {
  const std::vector<std::pair<std::string, std::string>> table = {
      {"trian={}", "trian: unknown key; did you mean \"train\"?"},
      {"run.sead=1", "run.sead: unknown key; did you mean \"run.seed\"?"},
      {"model.layer=1", "model.layer: unknown key; did you mean \"model.layers\"?"},
      {"data.tokeniser=byte", "data.tokeniser: unknown key; did you mean \"data.tokenizer\"?"},
      {"data.train.0.pth=x", "data.train.0.pth: unknown key; did you mean \"data.train.0.path\"?"},
      {"train.step=1", "train.step: unknown key; did you mean \"train.steps\"?"},
      {"optimizer.weight_dacay=1", "did you mean \"optimizer.weight_decay\"?"},
      {"schedule.warmup_step=1", "did you mean \"schedule.warmup_steps\"?"},
      {"precision.computes=f32", "did you mean \"precision.compute\"?"},
      {"log.evry=1", "log.evry: unknown key; did you mean \"log.every\"?"},
      {"sample.topk=1", "sample.topk: unknown key; did you mean \"sample.top_k\"?"},
      {"train.lr=1", "train.lr: unknown key; did you mean \"optimizer.lr\"?"},
      {"steps=1", "steps: unknown key; did you mean \"train.steps\"?"},
  };
  for (const auto& [change, message] : table) {
    EXPECT_THAT(error_of(kGood, {change}), HasSubstr(message));
  }
}

TEST(TrainConfig, AllProblemsAreToldAtOnceAndOverridesAreNamed) {
  const std::string message =
      error_of(kGood, {"train.steps=0", "model.heads=5", "optimizer.lrr=1", "run.device=cuda"});
  EXPECT_THAT(message, HasSubstr("4 problems"));
  EXPECT_THAT(message, HasSubstr("(from --set train.steps=0)"));
}

TEST(TrainConfig, TheReferenceDescribesEveryKeyOfTheResolvedConfiguration) {
  const std::string reference = document_train_config();
  JsonSyntaxError error;
  const auto root = parse_json(dump_config(parse_train_config(kGood, "test.json")),
                               JsonComments::kRefused, &error);
  ASSERT_TRUE(root);
  for (const auto& [section, node] : root->members) {
    EXPECT_THAT(reference, HasSubstr(section));
    for (const auto& [key, value] : node.members) {
      if (section == "model" && key == "name") continue;
      const std::string path = section + "." + key;
      for (const auto& inner : value.members) {
        EXPECT_THAT(reference, HasSubstr("  " + path + "." + inner.first + "\n"));
      }
      if (value.members.empty()) {
        EXPECT_THAT(reference, HasSubstr("  " + path + "\n"));
      }
    }
  }
}

TEST(TrainConfig, ABatchThatRanksCannotShareIsRefusedWithWhatWouldFit) {
  TrainConfig c = parse_train_config(kGood, "test.json");
  c.train.global_batch = 12;
  c.train.micro_batch = 2;
  EXPECT_NO_THROW(check_world(c, 3));
  EXPECT_EQ(c.micro_batches(3), 2);
  const auto refused = [&c](int64_t world) {
    try {
      check_world(c, world);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refused(4),
              HasSubstr("train.micro_batch that divides 3, or a train.global_batch that "
                        "is a multiple of 8"));
  EXPECT_THAT(refused(5), HasSubstr("multiple of 10"));
  c.train.micro_batch.reset();
  EXPECT_EQ(c.micro_batch(4), 3);
  EXPECT_NO_THROW(check_world(c, 4));
}

TEST(TrainConfig, TheShippedConfigurationsAreGood) {
  int found = 0;
  for (const auto& entry : std::filesystem::directory_iterator("configs")) {
    if (entry.path().extension() != ".json") continue;
    const std::string file = entry.path().string();
    EXPECT_NO_THROW(parse_train_config(read_file(file), file)) << file;
    ++found;
  }
  EXPECT_GE(found, 9);
}

}  // namespace
}  // namespace zpp
