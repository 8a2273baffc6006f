#include "parallel/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>

#include "core/json_tree.h"
#include "tests/comm/local_ranks.h"
#include "tests/parallel/run_fixture.h"

namespace zpp {
namespace {

/// Keeps the lines.
class MemoryLog : public Log {
 public:
  void write(LogLevel, std::string_view text) override { all += std::string(text) + "\n"; }
  std::string all;
};

class TrainerTest : public RunTest {
 protected:
  TrainResult run(const TrainConfig& config, const TrainerOptions& options = {}) {
    return run(config, open_train_data(config), options);
  }
  TrainResult run(const TrainConfig& config, const TrainData& data,
                  const TrainerOptions& options = {}) {
    const RunDirectory directory = prepare_run_directory(config);
    return train(config, data, directory, log_, options);
  }
  /// The lines of metrics.jsonl of one kind.
  std::vector<JsonNode> metrics(const std::string& kind) const {
    std::vector<JsonNode> lines;
    std::ifstream file(dir_ / "run" / "metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
      JsonSyntaxError error;
      auto node = parse_json(line, JsonComments::kRefused, &error);
      if (!node) ADD_FAILURE() << line << ": " << error.text;
      if (node && node->find("kind")->text == kind) lines.push_back(std::move(*node));
    }
    return lines;
  }
  std::vector<double> column(const std::string& kind, const std::string& key) const {
    std::vector<double> values;
    for (const JsonNode& line : metrics(kind)) values.push_back(line.find(key)->number);
    return values;
  }
  MemoryLog log_;
};

TEST_F(TrainerTest, TheLossFallsOnTrainingAndHeldOutText) {
  const TrainResult result = run(config({"train.steps=60", "log.every=10"}));
  EXPECT_EQ(result.outcome, TrainOutcome::kDone);
  EXPECT_EQ(result.steps, 60);
  const std::vector<double> train = column("train", "loss"), val = column("eval", "val_loss");
  EXPECT_GT(train.front(), 5.4);
  EXPECT_LT(train.back(), 2.6);
  EXPECT_LT(val.back(), 2.6);
  EXPECT_EQ(column("train", "step"), (std::vector<double>{1, 10, 20, 30, 40, 50, 60}));
  EXPECT_EQ(column("eval", "step"), (std::vector<double>{0, 10, 20, 30, 40, 50, 60}));
  EXPECT_EQ(column("train", "tokens").back(), 60.0 * 4 * 16);
  EXPECT_THAT(log_.all, testing::HasSubstr("in f32 products by "));
}

TEST_F(TrainerTest, TwoRunsGiveIdenticalLossesAndSamples) {
  const TrainResult first = run(config());
  const std::vector<double> losses = column("train", "loss"), evals = column("eval", "val_loss");
  const TrainResult second = run(config());
  EXPECT_EQ(column("train", "loss"), losses);
  EXPECT_EQ(column("eval", "val_loss"), evals);
  EXPECT_EQ(first.sample, second.sample);
  EXPECT_EQ(losses.size(), 20u);
  run(config({"run.seed=2"}));
  EXPECT_NE(column("train", "loss"), losses);
}

TEST_F(TrainerTest, TheRunDirectoryHoldsEverythingAndOldMetricsAreKept) {
  const TrainResult result = run(config());
  EXPECT_EQ(result.sample.size(), 21u);  // the prompt and twenty bytes
  EXPECT_EQ(read_file(dir_ / "run" / "sample.txt"), result.sample + "\n");
  const std::string resolved = read_file(dir_ / "run" / "config.json");
  EXPECT_THAT(resolved, testing::HasSubstr("\"git_revision\""));
  EXPECT_EQ(dump_config(parse_train_config(resolved, "config.json")), resolved);
  EXPECT_TRUE(metrics("event").back().find("event")->text == "done");

  const std::string before = read_file(dir_ / "run" / "metrics.jsonl");
  run(config());
  EXPECT_EQ(read_file(dir_ / "run" / "metrics-1.jsonl"), before);
  EXPECT_THAT(log_.all, testing::HasSubstr("are now metrics-1.jsonl"));
  EXPECT_EQ(metrics("event").front().find("event")->text, "kept");
  run(config());
  EXPECT_TRUE(std::filesystem::exists(dir_ / "run" / "metrics-2.jsonl"));
}

TEST_F(TrainerTest, ARunDirectoryThatIsAFileIsRefused) {
  write_file_atomic(dir_ / "run", "not a directory");
  EXPECT_THROW(prepare_run_directory(config()), Error);
}

TEST_F(TrainerTest, ARequestToStopEndsTheRunAfterTheStep) {
  int asked = 0;
  TrainerOptions options;
  options.stop_requested = [&asked] { return ++asked > 8; };
  const TrainResult result = run(config({"log.every=100"}), options);
  EXPECT_EQ(result.outcome, TrainOutcome::kStopped);
  EXPECT_LT(result.steps, 20);
  EXPECT_EQ(column("train", "step").back(), static_cast<double>(result.steps));
  EXPECT_EQ(metrics("event").back().find("event")->text, "stopped");
  EXPECT_EQ(result.sample, "");
}

TEST_F(TrainerTest, StepsThatStayNotFiniteEndTheRunNamingTheTensor) {
  // A learning rate that blows the weights up at once.
  const TrainResult result =
      run(config({"optimizer.lr=1000", "schedule.warmup_steps=0", "optimizer.weight_decay=1000",
                  "train.max_bad_steps=3", "train.eval_every=0", "train.steps=200"}));
  EXPECT_EQ(result.outcome, TrainOutcome::kFailed);
  const JsonNode last = metrics("event").back();
  EXPECT_EQ(last.find("event")->text, "failed");
  EXPECT_THAT(last.find("text")->text, testing::HasSubstr("3 steps in a row were not finite"));
  EXPECT_THAT(last.find("text")->text, testing::ContainsRegex("weights|gradient"));
  EXPECT_LT(result.steps, 200);
}

TEST_F(TrainerTest, AMaskedRunLearnsAndCountsItsTargets) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += "abc def\n";
  write_file_atomic(dir_ / "train.txt", text);
  const TrainResult result = run(config(
      {"data.document_mask=true", "data.train.0.eot=10", "data.val=[]", "train.eval_every=0"}));
  EXPECT_EQ(result.outcome, TrainOutcome::kDone);
  EXPECT_LT(column("train", "loss").back(), column("train", "loss").front() - 1);
  // One target in eight lies in the next document.
  EXPECT_EQ(column("train", "tokens").back(), 20.0 * 4 * 14);
}

TEST_F(TrainerTest, ProgressIsShownOnlyToThoseWhoWatch) {
  std::vector<std::string> lines;
  TrainerOptions options;
  options.show_progress = [&lines](std::string_view line) { lines.emplace_back(line); };
  run(config(), options);
  EXPECT_EQ(std::count_if(lines.begin(), lines.end(), [](const auto& l) { return !l.empty(); }),
            20);
  EXPECT_EQ(lines.back(), "");
}

TEST_F(TrainerTest, AModelWithoutByteVocabularyShowsIds) {
  const TrainResult result = run(config({"model.vocab=2000", "train.steps=3"}));
  EXPECT_THAT(result.sample, testing::MatchesRegex("10( [0-9]+)+"));
}

/// Two nodes of two ranks, as threads.
class TrainerRanks : public TrainerTest {
 protected:
  /// Results by rank. `stop` is asked by rank number.
  std::vector<TrainResult> run_as_ranks(const TrainConfig& config,
                                        const std::function<bool(int)>& stop = {}) {
    std::vector<TrainResult> results(4);
    std::vector<MemoryLog> logs(4);
    run_ranks(topology_of({2, 4}), {}, [&](LocalRank& rank) {
      Mesh mesh{rank.mesh.topology, rank.mesh.weights, rank.mesh.grads, &rank.ledger};
      RunDirectory directory;
      if (rank.rank == 0) {
        directory = prepare_run_directory(config);
      } else {
        directory.dir = config.run.dir;
        directory.rank = rank.rank;
      }
      TrainerOptions options;
      if (stop) options.stop_requested = [&stop, r = rank.rank] { return stop(r); };
      const auto r = static_cast<size_t>(rank.rank);
      results[r] = train(config, open_train_data(config), directory, logs[r], options, &mesh);
    });
    log_.all = logs[0].all;
    other_log_ = logs[3].all;
    return results;
  }
  std::string other_log_;
};

TEST_F(TrainerRanks, TrainLikeOneProcessAndOnlyTheFirstWrites) {
  for (const char* preset : {"zero3", "hybrid"}) {
    const TrainConfig c = config({"train.micro_batch=1", "train.global_batch=8", "run.threads=1",
                                  "train.eval_batches=3", std::string("zero.preset=") + preset});
    const TrainResult single = run(c);
    const std::vector<double> losses = column("train", "loss"), evals = column("eval", "val_loss");
    const std::vector<TrainResult> ranks = run_as_ranks(c);
    const std::vector<double> found = column("train", "loss"), val = column("eval", "val_loss");
    ASSERT_EQ(found.size(), losses.size());
    for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], losses[i], 1e-4 * losses[i]);
    for (size_t i = 0; i < val.size(); ++i) EXPECT_NEAR(val[i], evals[i], 1e-4 * evals[i]);
    EXPECT_EQ(column("train", "tokens").back(), 20.0 * 8 * 16);
    EXPECT_GT(column("train", "inter_node_bytes").back(), 0);
    EXPECT_GT(column("train", "intra_node_bytes").back(), 0);
    for (const TrainResult& result : ranks) {
      EXPECT_EQ(result.steps, 20);
      EXPECT_EQ(result.sample, ranks[0].sample);
    }
    EXPECT_EQ(read_file(dir_ / "run" / "sample.txt"), ranks[0].sample + "\n");
    EXPECT_THAT(log_.all, testing::HasSubstr("rank 0 of 4 in groups of 2"));
    EXPECT_THAT(other_log_, testing::Not(testing::HasSubstr("val loss")));
  }
}

TEST_F(TrainerRanks, AWishToStopOfOneEndsAllAfterTheSameStep) {
  std::atomic<int> asked{0};
  const std::vector<TrainResult> ranks =
      run_as_ranks(config({"train.micro_batch=1", "run.threads=1", "train.steps=200"}),
                   [&asked](int rank) { return rank == 2 && ++asked > 7; });
  for (const TrainResult& result : ranks) {
    EXPECT_EQ(result.outcome, TrainOutcome::kStopped);
    EXPECT_EQ(result.steps, ranks[0].steps);
    EXPECT_LT(result.steps, 20);
  }
}

TEST_F(TrainerRanks, DataThatOneRankCannotReadEndsAll) {
  const TrainConfig c = config({"train.micro_batch=1", "run.threads=1", "train.eval_every=0"});
  const auto errors = run_ranks_to_errors(topology_of({2, 4}), {}, [&](LocalRank& rank) {
    TrainData data = open_train_data(c);
    if (rank.rank == 1) {
      data.train = [inner = data.train](int64_t first, int64_t n) {
        if (first > 20) throw Error(Code::kIo, "train.txt: read failed");
        return inner(first, n);
      };
    }
    RunDirectory directory;
    directory.dir = dir_ / "run";
    directory.rank = rank.rank;
    std::filesystem::create_directories(directory.dir);
    MemoryLog log;
    train(c, data, directory, log, {}, &rank.mesh);
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_THAT(error->what(), testing::HasSubstr("train.txt: read failed"));
  }
}

}  // namespace
}  // namespace zpp
