#include "parallel/train_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/data/tokenize.h"
#include "tests/parallel/run_fixture.h"

namespace zpp {
namespace {

using testing::HasSubstr;

class TrainDataTest : public RunTest {
 protected:
  /// Code and message of opening the data of a configuration.
  std::pair<Code, std::string> error_of(const std::vector<std::string>& changes) {
    try {
      open_train_data(config(changes));
    } catch (const Error& error) {
      return {error.code(), error.what()};
    }
    return {Code::kInternal, "no error"};
  }
  std::string path(const std::string& name) const { return (dir_ / name).string(); }
};

TEST_F(TrainDataTest, BatchesAreTheFilesWindowsAndValidationIsInOrder) {
  const TrainConfig c = config();
  const TrainData data = open_train_data(c);
  const HostBatch batch = data.train(4, 2);
  EXPECT_EQ(batch.samples, 2);
  EXPECT_EQ(batch.length, 16);
  EXPECT_EQ(batch.valid, 32);
  EXPECT_EQ(batch.tokens[1], batch.targets[0]);
  const HostBatch val = data.val(0, 1);
  const std::string text = read_file(path("val.txt"));
  for (size_t t = 0; t < 16; ++t) EXPECT_EQ(val.tokens[t], text[t]);
  EXPECT_EQ(data.val_windows, (static_cast<int64_t>(text.size()) - 1) / 16);
  EXPECT_EQ(data.facts.train_bytes, static_cast<int64_t>(read_file(path("train.txt")).size()));
}

TEST_F(TrainDataTest, BrokenFilesAreNamedWithTheKeyThatNamesThem) {
  write_file_atomic(dir_ / "short.txt", "only this");
  write_file_atomic(dir_ / "odd.bin", std::string(1001, 'x'));
  write_file_atomic(dir_ / "even.bin", std::string(1000, 'x'));
  write_file_atomic(dir_ / "empty.txt", "");
  tokenize({.inputs = {dir_ / "train.txt"}, .output = dir_ / "train.tokens"});
  struct Case {
    std::vector<std::string> changes;
    Code code;
    std::string message;
  };
  const std::vector<Case> table = {
      {{"data.train.0.path=" + path("none.bin")}, Code::kNotFound, "data.train: "},
      {{"data.val.0.path=" + path("none.bin")}, Code::kNotFound, "data.val: "},
      {{"data.train.0.path=" + path("short.txt")}, Code::kInvalidArgument, "one sample takes 17"},
      {{"data.train.0.path=" + path("empty.txt")}, Code::kInvalidArgument, "empty.txt"},
      {{"data.train.0.path=" + path(""), "data.train.0.format=text"},
       Code::kInvalidArgument,
       "data.train: "},
      {{"data.train.0.format=auto"}, Code::kInvalidArgument, "train.txt"},
      {{"data.train.0.format=llmc"}, Code::kInvalidArgument, "train.txt"},
      {{"data.train.0.path=" + path("odd.bin"), "data.train.0.format=raw_u16"},
       Code::kInvalidArgument,
       "odd.bin"},
      {{"data.train.0.path=" + path("even.bin"), "data.train.0.format=raw_u16",
        "data.document_mask=true"},
       Code::kInvalidArgument,
       "eot"},
      {{"data.train.0.path=" + path("train.tokens"), "data.train.0.format=auto", "model.vocab=200"},
       Code::kInvalidArgument,
       "257"},
  };
  for (const Case& c : table) {
    const auto [code, message] = error_of(c.changes);
    EXPECT_EQ(code, c.code) << c.changes.front() << ": " << message;
    EXPECT_THAT(message, HasSubstr(c.message)) << c.changes.front();
  }
}

TEST_F(TrainDataTest, SyntheticTokensNeedNoFilesAndRepeat) {
  const TrainConfig c = config({"data.train.0.path=/nonexistent"});
  const TrainData data = synthetic_data(c);
  const HostBatch a = data.train(3, 2), b = data.train(3, 2);
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.tokens[1], a.targets[0]);
  EXPECT_NE(a.tokens, data.train(5, 2).tokens);
  for (const int32_t id : a.tokens) {
    EXPECT_GE(id, 0);
    EXPECT_LT(id, 257);
  }
}

}  // namespace
}  // namespace zpp
