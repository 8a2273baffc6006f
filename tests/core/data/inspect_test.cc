#include "core/data/inspect.h"

#include <gtest/gtest.h>

#include "core/data/tokenize.h"
#include "tests/core/data/test_files.h"

namespace zpp {
namespace {

class Inspect : public testing_data::DataTest {};

TEST_F(Inspect, ShowsHeaderRangeEntropyAndText) {
  const std::string text = put("a.txt", "aabb\naabb\x1b");
  tokenize({.inputs = {text}, .output = path("a.bin")});
  EXPECT_EQ(inspect(path("a.bin"), {.samples = 2, .sample_tokens = 6}),
            "file       " + path("a.bin") +
                "\n"
                "format     zpp, u16 tokens after 128 bytes\n"
                "tokens     11\n"
                "tokenizer  byte, vocabulary 257, end of text 256\n"
                "documents  1\n"
                "ids        10 to 256\n"
                "entropy    1.3897 nats per token, each token alone\n"
                "\n"
                "  tokens 0 to 5\n"
                "    | aabb\n"
                "    | a\n"
                "\n"
                "  tokens 5 to 10\n"
                "    | aabb\\x1b<|endoftext|>\n");
}

TEST_F(Inspect, ShowsIdsWhereTheTokenizerIsNotKnown) {
  const std::string name = put("a.bin", testing_data::llmc_file<uint16_t>({50256, 7, 8, 50256, 9}));
  const std::string report = inspect(name, {.samples = 1, .scan_tokens = 3});
  EXPECT_NE(report.find("tokenizer  not named in the file, end of text 50256\n"), std::string::npos)
      << report;
  EXPECT_NE(report.find("documents  1 ends of text\n"), std::string::npos) << report;
  EXPECT_NE(report.find("ids        7 to 50256 (of the first 3 tokens)\n"), std::string::npos)
      << report;
  EXPECT_NE(report.find("entropy    1.0986 nats"), std::string::npos) << report;
  EXPECT_NE(report.find("    | 50256 7 8 50256 9\n"), std::string::npos) << report;
}

TEST_F(Inspect, FindsABadIdAnywhereAndSurvivesAnEmptyFile) {
  const std::string name = put("a.bin", testing_data::llmc_file<uint16_t>({1, 2, 3, 900}));
  EXPECT_EQ(testing_data::invalid_argument([&] { inspect(name, {.file = {.vocab = 100}}); }),
            name + ": token 3 (at byte 1030) is 900, but the vocabulary has the ids 0 to 99");
  EXPECT_NE(inspect(put("empty.bin", testing_data::zpp_file({}))).find("tokens     0\n"),
            std::string::npos);
}

}  // namespace
}  // namespace zpp
