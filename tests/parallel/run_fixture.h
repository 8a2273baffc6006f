// A scratch directory with a small text to learn, and a configuration of a GPT that learns it in a
// moment.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "core/files.h"
#include "parallel/train_config.h"

namespace zpp {

class RunTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    dir_ = std::filesystem::path(testing::TempDir()) / info->test_suite_name() / info->name();
    std::filesystem::remove_all(dir_);
    std::string text;
    for (int i = 0; text.size() < 6000; ++i) {
      text += "The " + std::to_string(i * 37 % 101) + " cats sat on the mat, and ";
    }
    write_file_atomic(dir_ / "train.txt", text);
    write_file_atomic(dir_ / "val.txt", text.substr(1000, 2000));
  }

  std::string config_text() const {
    return R"({
      "run": {"name": "test", "threads": 2, "dir": ")" +
           (dir_ / "run").string() + R"("},
      "model": {"name": "gpt", "layers": 2, "width": 32, "heads": 2, "context": 16, "vocab": 257},
      "data": {"train": [{"path": ")" +
           (dir_ / "train.txt").string() + R"(", "format": "text"}],
               "val": [{"path": ")" +
           (dir_ / "val.txt").string() + R"(", "format": "text"}]},
      "train": {"steps": 20, "global_batch": 4, "micro_batch": 2, "eval_every": 10,
                "eval_batches": 2},
      "optimizer": {"lr": 1e-2},
      "schedule": {"warmup_steps": 2},
      "log": {"every": 1},
      "sample": {"tokens": 20}
    })";
  }
  TrainConfig config(const std::vector<std::string>& changes = {}) const {
    return parse_train_config(config_text(), "test.json", changes);
  }

  std::filesystem::path dir_;
};

}  // namespace zpp
