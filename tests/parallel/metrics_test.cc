#include "parallel/metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "core/files.h"
#include "core/json_tree.h"

namespace zpp {
namespace {

namespace fs = std::filesystem;

class Metrics : public testing::Test {
 protected:
  void SetUp() override { fs::remove(path_); }
  /// The last line of the file, parsed; a failure if the file does not end with a whole line.
  JsonNode last_line() {
    std::string text = read_file(path_);
    EXPECT_TRUE(text.ends_with('\n'));
    text.pop_back();
    JsonSyntaxError error;
    const size_t begin = text.rfind('\n');
    auto node = parse_json(begin == std::string::npos ? text : text.substr(begin + 1),
                           JsonComments::kRefused, &error);
    EXPECT_TRUE(node) << error.text;
    return node.value_or(JsonNode());
  }
  const fs::path path_ = fs::path(testing::TempDir()) / "metrics_test.jsonl";
};

TrainRecord record() {
  return {.step = 120,
          .tokens = 245760,
          .stats = {.loss = 2.34567891234,
                    .grad_norm = 1.5,
                    .grad_norm_clipped = 1.0,
                    .lr = 3e-4,
                    .tokens = 2048,
                    .skipped = false},
          .skipped = 0,
          .step_s = 0.5,
          .tokens_per_s = 4096,
          .mfu = 0.42,
          .peak_bytes = 1 << 30,
          .inter_node_bytes = 1234,
          .intra_node_bytes = 5678,
          .exposed_comm_s = 0.25,
          .overlap = 0.75,
          .seconds_left = 192};
}

TEST_F(Metrics, TrainLinesHaveAllKeysAndNineDigitsOfLoss) {
  MetricsFile(path_).train(record());
  const JsonNode line = last_line();
  for (const char* key : {"kind", "step", "tokens", "loss", "lr", "grad_norm", "grad_norm_clipped",
                          "skipped", "step_s", "tokens_per_s", "mfu", "peak_bytes",
                          "inter_node_bytes", "intra_node_bytes", "exposed_comm_s", "overlap"}) {
    EXPECT_NE(line.find(key), nullptr) << key;
  }
  EXPECT_EQ(line.find("kind")->text, "train");
  EXPECT_EQ(line.find("inter_node_bytes")->number, 1234);
  EXPECT_EQ(line.find("intra_node_bytes")->number, 5678);
  EXPECT_EQ(line.find("exposed_comm_s")->number, 0.25);
  EXPECT_EQ(line.find("overlap")->number, 0.75);
  EXPECT_EQ(line.find("loss")->text, "2.34567891");
  EXPECT_EQ(line.find("grad_norm_clipped")->number, 1.0);
  EXPECT_EQ(line.find("peak_bytes")->integer, 1 << 30);
}

TEST_F(Metrics, WhatIsNotFiniteIsNull) {
  TrainRecord bad = record();
  bad.stats.loss = NAN;
  bad.stats.grad_norm = INFINITY;
  MetricsFile(path_).train(bad);
  EXPECT_EQ(last_line().find("loss")->kind, JsonNode::Kind::kNull);
  EXPECT_EQ(last_line().find("grad_norm")->kind, JsonNode::Kind::kNull);
}

TEST_F(Metrics, EvalLinesAndEventsAreAppendedAndEscaped) {
  MetricsFile metrics(path_);
  metrics.eval({.step = 7, .tokens = 70, .val_loss = 1.25, .eval_s = 0.5});
  EXPECT_EQ(last_line().find("kind")->text, "eval");
  EXPECT_EQ(last_line().find("val_loss")->number, 1.25);
  metrics.event(7, 70, "skipped", "a \"quoted\"\nreason");
  EXPECT_EQ(last_line().find("kind")->text, "event");
  EXPECT_EQ(last_line().find("text")->text, "a \"quoted\"\nreason");
  MetricsFile(path_).event(8, 80, "done", "second opening keeps the first lines");
  const std::string text = read_file(path_);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
}

TEST_F(Metrics, AFileThatCannotBeOpenedIsNamed) {
  try {
    MetricsFile("/nonexistent/metrics.jsonl");
    FAIL() << "opened";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kIo);
    EXPECT_NE(std::string(error.what()).find("/nonexistent/metrics.jsonl"), std::string::npos);
  }
}

TEST_F(Metrics, ConsoleLinesOfOneRunAreAligned) {
  TrainRecord late = record();
  late.step = 9000;
  late.stats.loss = 11.02;
  late.stats.grad_norm = 123.4;
  late.tokens_per_s = 123456;
  const std::string a = console_line(record(), 10000), b = console_line(late, 10000);
  for (const char* column : {"loss", "lr", "norm", "tok/s", "mfu", "mem", "left"}) {
    EXPECT_EQ(a.find(column), b.find(column)) << a << "\n" << b;
  }
  EXPECT_NE(a.find("step   120/10000  loss 2.3457"), std::string::npos) << a;
  EXPECT_NE(a.find("4,096 tok/s  mfu 42.0 %  mem 1.00 GiB  left 3 m 12 s"), std::string::npos) << a;
}

TEST_F(Metrics, TheProgressBarFills) {
  TrainRecord half = record();
  half.step = 50;
  EXPECT_TRUE(progress_line(half, 100).starts_with("[############            ]  50 %"))
      << progress_line(half, 100);
}

}  // namespace
}  // namespace zpp
