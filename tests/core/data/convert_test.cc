#include "core/data/convert.h"

#include <gtest/gtest.h>

#include "core/data/token_writer.h"
#include "tests/core/data/test_files.h"

namespace zpp {
namespace {

using testing_data::invalid_argument;
using testing_data::llmc_file;
using testing_data::raw;
using testing_data::zpp_file;

class Convert : public testing_data::DataTest {
 protected:
  std::vector<int32_t> tokens(const std::string& name) const {
    const TokenFile file(path(name));
    std::vector<int32_t> ids(static_cast<size_t>(file.size()));
    file.read(0, ids);
    return ids;
  }
};

TEST_F(Convert, RawTokensBecomeZppWithTheirVocabulary) {
  const std::string in = put("raw", raw<uint16_t>({5, 50256, 6, 7, 50256}));
  const ConvertReport report =
      convert(in, path("o.bin"), {.from = {.format = "raw_u16", .eot = 50256}});
  EXPECT_EQ(report.tokens, 5);
  EXPECT_EQ(report.documents, 2);
  EXPECT_TRUE(report.documents_kept);
  EXPECT_EQ(tokens("o.bin"), (std::vector<int32_t>{5, 50256, 6, 7, 50256}));
  const TokenFile out(path("o.bin"));
  EXPECT_EQ(out.info().vocab, 50257);
  EXPECT_EQ(out.info().eot, 50256);
  EXPECT_EQ(out.info().documents, 2);
}

TEST_F(Convert, BothLlmcFormatsAreWrittenAsLlmcReadsThem) {
  const std::string small = put("a.bin", zpp_file({1, 2, 3}, 50257, 50256, "gpt2"));
  convert(small, path("small.bin"), {.to = "llmc"});
  EXPECT_EQ(read_file(path("small.bin")), llmc_file<uint16_t>({1, 2, 3}));
  const std::string large = put("b.bin", llmc_file<uint32_t>({1, 128255, 3}));
  convert(large, path("large.zpp"), {.tokenizer = "llama3"});
  EXPECT_EQ(TokenFile(path("large.zpp")).info().type, TokenType::kU32);
  EXPECT_EQ(TokenFile(path("large.zpp")).info().tokenizer, "llama3");
  EXPECT_EQ(TokenFile(path("large.zpp")).info().vocab, 128256);
  convert(path("large.zpp"), path("large.bin"), {.to = "llmc"});
  EXPECT_EQ(read_file(path("large.bin")), llmc_file<uint32_t>({1, 128255, 3}));
}

// An llm.c file of four-byte tokens is Llama 3's to whoever reads it, and its documents begin with
// another id than GPT-2's.
TEST_F(Convert, LlmcKeepsDocumentsOnlyWithTheIdThatItsTokenWidthImplies) {
  const std::string in = put("a.bin", llmc_file<uint16_t>({1, 50256, 3}));
  EXPECT_TRUE(convert(in, path("o"), {.from = {.vocab = 50257}, .to = "llmc"}).documents_kept);
  EXPECT_EQ(TokenFile(path("o")).info().eot, 50256);
  EXPECT_FALSE(convert(in, path("o"), {.from = {.vocab = 100000}, .to = "llmc"}).documents_kept);
  EXPECT_NE(TokenFile(path("o")).info().eot, 50256);
}

TEST_F(Convert, MegatronDocumentsGetAnEndOfTextEachWhereTheyLackOne) {
  put("d.bin", testing_data::megatron_bin());
  put("d.idx", testing_data::megatron_idx());
  ConvertReport report = convert(path("d"), path("plain.bin"));
  EXPECT_FALSE(report.documents_kept);
  EXPECT_EQ(tokens("plain.bin"), (std::vector<int32_t>{1, 2, 3, 4, 5}));
  report = convert(path("d"), path("ends.bin"), {.from = {.eot = 3}});
  EXPECT_TRUE(report.documents_kept);
  EXPECT_EQ(report.documents, 2);
  EXPECT_EQ(tokens("ends.bin"), (std::vector<int32_t>{1, 2, 3, 4, 5, 3}));
  EXPECT_EQ(convert(path("d"), path("ends.bin"), {.from = {.eot = 9}}).tokens, 7);
  EXPECT_EQ(tokens("ends.bin"), (std::vector<int32_t>{1, 2, 3, 9, 4, 5, 9}));
}

TEST_F(Convert, ManyChunksArriveInOrder) {
  std::vector<uint16_t> many(2'500'000);
  for (size_t i = 0; i < many.size(); ++i) many[i] = static_cast<uint16_t>(i * 7919);
  const std::string in = put("raw", raw(many));
  convert(in, path("o.bin"), {.from = {.format = "raw_u16"}});
  EXPECT_EQ(read_file(path("o.bin")).substr(128), raw(many));
}

TEST_F(Convert, RefusesWhatCannotBeWritten) {
  const std::string in = put("raw", raw<uint16_t>({5, 6, 7}));
  EXPECT_EQ(invalid_argument([&] { convert(in, in, {.from = {.format = "raw_u16"}}); }),
            "convert: " + in + " is both input and output");
  EXPECT_EQ(invalid_argument(
                [&] { convert(in, path("o"), {.from = {.format = "raw_u16"}, .to = "megatron"}); }),
            "cannot write format \"megatron\", expected zpp or llmc");
  EXPECT_EQ(invalid_argument(
                [&] { convert(in, path("o"), {.from = {.format = "raw_u16", .vocab = 7}}); }),
            in + ": token 2 (at byte 4) is 7, but the vocabulary has the ids 0 to 6");
  EXPECT_EQ(invalid_argument(
                [&] { convert(in, path("o"), {.from = {.format = "raw_u16", .eot = 70000}}); }),
            "end-of-text id 70000 is outside the ids 0 to 65535");
  EXPECT_FALSE(std::filesystem::exists(path("o")));
}

TEST_F(Convert, TheWriterChecksIdsAndOptions) {
  TokenWriter writer(path("w"), {.vocab = 10});
  EXPECT_EQ(invalid_argument([&] {
              writer.write(std::vector<int32_t>{3, 10});
            }),
            path("w") + ": id 10 is outside the ids 0 to 9");
  EXPECT_THROW(TokenWriter(path("w"), {.type = TokenType::kI64}), Error);
  EXPECT_THROW(TokenWriter(path("w"), {.vocab = 70000}), Error);
  EXPECT_THROW(TokenWriter(path("w"), {.tokenizer = std::string(33, 'x')}), Error);
}

}  // namespace
}  // namespace zpp
