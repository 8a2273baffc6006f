#include "core/data/token_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <functional>
#include <numeric>

#include "tests/core/data/test_files.h"

namespace zpp {
namespace {

using testing_data::from_hex;
using testing_data::invalid_argument;
using testing_data::llmc_file;
using testing_data::megatron_bin;
using testing_data::megatron_idx;
using testing_data::raw;
using testing_data::zpp_file;

class TokenFiles : public testing_data::DataTest {};

std::vector<int32_t> all(const TokenFile& file) {
  std::vector<int32_t> tokens(static_cast<size_t>(file.size()));
  file.read(0, tokens);
  return tokens;
}

TEST_F(TokenFiles, ReadsZppAndItsHeader) {
  const TokenFile file(put("a.bin", zpp_file({1, 2, 256, 3})));
  EXPECT_EQ(file.info().format, "zpp");
  EXPECT_EQ(file.info().vocab, 257);
  EXPECT_EQ(file.info().eot, 256);
  EXPECT_EQ(file.info().tokenizer, "byte");
  EXPECT_EQ(all(file), (std::vector<int32_t>{1, 2, 256, 3}));
  EXPECT_EQ(file.document_starts(0, 10), (std::vector<int64_t>{0, 3}));
  EXPECT_EQ(file.document_starts(1, 3), (std::vector<int64_t>{}));
}

TEST_F(TokenFiles, ReadsBothLlmcFormats) {
  const TokenFile gpt2(put("a.bin", llmc_file<uint16_t>({50256, 7, 65535})));
  EXPECT_EQ(gpt2.info().format, "llmc");
  EXPECT_EQ(gpt2.info().eot, 50256);
  EXPECT_EQ(all(gpt2), (std::vector<int32_t>{50256, 7, 65535}));
  const TokenFile llama(put("b.bin", llmc_file<uint32_t>({128000, 9, 128255})));
  EXPECT_EQ(llama.info().type, TokenType::kU32);
  EXPECT_EQ(all(llama), (std::vector<int32_t>{128000, 9, 128255}));
}

TEST_F(TokenFiles, ReadsTheLlmcHeaderVector) {
  std::string content = from_hex("88d834010100000003000000");
  content.resize(1024, '\0');
  const TokenFile file(put("a.bin", content + from_hex("010002000300")));
  EXPECT_EQ(all(file), (std::vector<int32_t>{1, 2, 3}));
}

TEST_F(TokenFiles, ReadsMegatronByAnyOfItsNames) {
  put("d.bin", megatron_bin());
  put("d.idx", megatron_idx());
  ASSERT_EQ(megatron_idx().size(), 82u);
  for (const char* name : {"d.bin", "d.idx", "d"}) {
    for (const char* format : {"auto", "megatron"}) {
      const TokenFile file(path(name), {.format = format});
      EXPECT_EQ(file.info().format, "megatron");
      EXPECT_EQ(file.info().documents, 2);
      EXPECT_EQ(all(file), (std::vector<int32_t>{1, 2, 3, 4, 5}));
      EXPECT_EQ(file.document_starts(0, 9), (std::vector<int64_t>{0, 3}));
      EXPECT_EQ(file.document_starts(1, 4), std::vector<int64_t>{3});
      EXPECT_EQ(file.document_starts(1, 3), std::vector<int64_t>{});
    }
  }
}

TEST_F(TokenFiles, ReadsEveryMegatronIntegerType) {
  const std::vector<std::pair<int, std::string>> types = {
      {1, raw<uint8_t>({1, 2, 3, 4, 5})}, {2, raw<int8_t>({1, 2, 3, 4, 5})},
      {3, raw<int16_t>({1, 2, 3, 4, 5})}, {4, raw<int32_t>({1, 2, 3, 4, 5})},
      {5, raw<int64_t>({1, 2, 3, 4, 5})}, {8, raw<uint16_t>({1, 2, 3, 4, 5})}};
  for (const auto& [code, bytes] : types) {
    std::string idx = megatron_idx();
    idx[17] = static_cast<char>(code);
    const int64_t second = static_cast<int64_t>(bytes.size()) / 5 * 3;
    std::memcpy(idx.data() + 34 + 8 + 8, &second, 8);
    put("d.bin", bytes);
    EXPECT_EQ(all(TokenFile(put("d.idx", idx))), (std::vector<int32_t>{1, 2, 3, 4, 5})) << code;
  }
}

TEST_F(TokenFiles, ReadsFilesWithoutHeaderWhenNamed) {
  const TokenFile u16(put("a.bin", raw<uint16_t>({5, 50256})), {.format = "raw_u16"});
  EXPECT_EQ(all(u16), (std::vector<int32_t>{5, 50256}));
  EXPECT_FALSE(u16.knows_documents());
  EXPECT_TRUE(TokenFile(path("a.bin"), {.format = "raw_u16", .eot = 50256}).knows_documents());
  const TokenFile text(put("a.txt", "A\xff\n"), {.format = "text"});
  EXPECT_EQ(all(text), (std::vector<int32_t>{65, 255, 10}));
  EXPECT_EQ(text.document_starts(0, 3), std::vector<int64_t>{0});
  EXPECT_EQ(TokenFile(put("empty", ""), {.format = "text"}).size(), 0);
}

TEST_F(TokenFiles, AnIdOutsideTheVocabularyIsNamedWithFilePositionAndByte) {
  const std::string name = put("a.bin", llmc_file<uint16_t>({1, 2, 999, 1000, 1001}));
  const TokenFile file(name, {.vocab = 1000});
  std::vector<int32_t> out(3);
  file.read(0, out);
  EXPECT_EQ(out[2], 999);
  EXPECT_EQ(invalid_argument([&] { file.read(2, out); }),
            name + ": token 3 (at byte 1030) is 1000, but the vocabulary has the ids 0 to 999");
  put("d.idx", [] {
    std::string idx = megatron_idx();
    idx[17] = 3;
    return idx;
  }());
  put("d.bin", raw<int16_t>({1, 2, -3, 4, 5}));
  EXPECT_EQ(invalid_argument([&] { all(TokenFile(path("d.bin"))); }),
            path("d.bin") +
                ": token 2 (at byte 4) is -3, but the vocabulary has the ids 0 to 2147483647");
}

TEST_F(TokenFiles, AZppFileForALargerVocabularyIsRefusedWhenOpened) {
  const std::string name = put("a.bin", zpp_file({1}, 257));
  EXPECT_EQ(invalid_argument([&] { TokenFile(name, {.vocab = 256}); }),
            name +
                ": made for a vocabulary of 257 (byte), but the model's is 256: set model.vocab to "
                "257 or more");
  EXPECT_EQ(TokenFile(name, {.vocab = 50304}).size(), 1);
}

TEST_F(TokenFiles, ReadingOutsideTheFileIsAnError) {
  const TokenFile file(put("a.bin", zpp_file({1, 2})));
  std::vector<int32_t> out(2);
  EXPECT_THROW(file.read(1, out), Error);
  EXPECT_THROW(file.read(-1, out), Error);
  EXPECT_THROW(file.read(INT64_MAX, out), Error);
}

TEST_F(TokenFiles, PositionsBeyondFourGigaTokensAreReached) {
  const int64_t tokens = (int64_t{1} << 32) + 1000;
  const std::string name = put("big.bin", "");
  ASSERT_EQ(::truncate(name.c_str(), tokens * 2), 0);  // a hole, takes no space
  std::FILE* out = std::fopen(name.c_str(), "r+b");
  ASSERT_NE(out, nullptr);
  const uint16_t mark = 77;
  ASSERT_EQ(::fseeko(out, (tokens - 3) * 2, SEEK_SET), 0);
  std::fwrite(&mark, 2, 1, out);
  std::fclose(out);
  const TokenFile file(name, {.format = "raw_u16", .eot = 77});
  EXPECT_EQ(file.size(), tokens);
  std::vector<int32_t> last(4);
  file.read(tokens - 4, last);
  EXPECT_EQ(last, (std::vector<int32_t>{0, 77, 0, 0}));
  EXPECT_EQ(file.document_starts(tokens - 4, tokens), std::vector<int64_t>{tokens - 2});
}

// A valid file with some bytes replaced.
std::string patched(std::string content, size_t at, const std::string& bytes) {
  return content.replace(at, bytes.size(), bytes);
}

TEST_F(TokenFiles, EachBrokenFileHasItsOwnMessage) {
  const std::string zpp = zpp_file({1, 2, 3}), llmc = llmc_file<uint16_t>({1, 2, 3});
  const auto u64 = [](uint64_t v) { return raw<uint64_t>({v}); };
  const auto i32 = [](int32_t v) { return raw<int32_t>({v}); };
  struct Case {
    std::string content, format, message;
  };
  const std::vector<Case> cases = {
      {"", "auto", "not a zpp, llmc or megatron token file; it is empty"},
      {"Once upon a time", "auto",
       "not a zpp, llmc or megatron token file; it looks like text: text has to go through "
       "`zpp-data tokenize` "
       "first (or use format \"text\")"},
      {"{\"text\": \"a\"}", "auto",
       "not a zpp, llmc or megatron token file; it looks like JSON: text has to go through "
       "`zpp-data tokenize` "
       "first (or use format \"text\")"},
      {"\x1f\x8b\x08 compressed", "auto",
       "not a zpp, llmc or megatron token file; it is compressed: zcat FILE | zpp-data tokenize -"},
      {"\x93NUMPY\x01", "auto",
       "not a zpp, llmc or megatron token file; it is a NumPy array: write its raw bytes and use "
       "format "
       "\"raw_u16\""},
      {raw<uint16_t>({1, 2, 3}), "auto",
       "not a zpp, llmc or megatron token file; files without a header need their format named: "
       "raw_u16 "
       "(nanoGPT) or text"},
      {i32(20240522), "auto",
       "not a zpp, llmc or megatron token file; it is an llm.c evaluation set, not a token file"},
      {i32(20240326), "auto",
       "not a zpp, llmc or megatron token file; it is an llm.c model, not a token file"},
      {"abc", "raw_u16", "raw_u16 has 2 bytes per token, this file has 3 bytes"},
      {llmc, "raw_u16",
       "format raw_u16 was named, but the file starts with the header of another format"},
      {"abc", "csv", "unknown format \"csv\", expected auto, zpp, llmc, megatron, raw_u16 or text"},
      {llmc, "zpp", "does not start with the magic of a zpp token file"},
      {zpp.substr(0, 100), "auto", "a zpp file has a header of 128 bytes, this file has 100 bytes"},
      {patched(zpp, 8, i32(2)), "auto", "version 2 of the zpp token format, expected 1"},
      {patched(zpp, 12, i32(3)), "auto", "3 bytes per token, expected 2 or 4"},
      {patched(zpp, 16, u64(4)), "auto",
       "the header promises 4 tokens of 2 bytes, but 6 bytes follow it (a copy that was cut off?)"},
      {patched(zpp, 16, u64(2)), "auto",
       "the header promises 2 tokens of 2 bytes, but 6 bytes follow it"},
      {patched(zpp, 16, u64(uint64_t{1} << 63)), "auto",
       "the header promises 9223372036854775808 tokens of 2 bytes, but 6 bytes follow it (a copy "
       "that was cut "
       "off?)"},
      {patched(zpp, 24, u64(0)), "auto", "a vocabulary of 0, expected 1 to 2147483648"},
      {patched(zpp, 32, u64(257)), "auto", "end-of-text id 257 is outside the vocabulary of 257"},
      {patched(zpp, 40, u64(4)), "auto", "4 documents in 3 tokens"},
      {patched(zpp, 50, std::string(1, '\0')), "auto",
       "the tokenizer's name in the header is damaged"},
      {patched(zpp, 100, "x"), "auto",
       "the last 48 bytes of the header are not zero: damaged, or made by a later version"},
      {zpp, "llmc",
       "magic number 1414549594, expected 20240520 or 20240801 of an llm.c token file"},
      {llmc.substr(0, 1000), "auto",
       "an llm.c file has a header of 1024 bytes, this file has 1000 bytes"},
      {patched(llmc, 4, i32(7)), "auto", "version 7 of the llm.c token format, expected 1"},
      {patched(llmc, 8, i32(-1)), "auto", "a token count of -1"},
      {llmc + "x", "auto", "the header promises 3 tokens of 2 bytes, but 7 bytes follow it"},
  };
  for (const Case& c : cases) {
    const std::string name = put("broken", c.content);
    EXPECT_EQ(invalid_argument([&] { TokenFile(name, {.format = c.format}); }),
              name + ": " + c.message);
  }
}

TEST_F(TokenFiles, EachBrokenMegatronIndexHasItsOwnMessage) {
  const auto u64 = [](uint64_t v) { return raw<uint64_t>({v}); };
  const std::string idx = megatron_idx();
  struct Case {
    std::string content, message;
  };
  const std::vector<Case> cases = {
      {idx.substr(0, 20), "a Megatron index has at least 34 bytes, found 20"},
      {patched(idx, 0, "X"), "does not start with the magic MMIDIDX of a Megatron index"},
      {patched(idx, 9, u64(2)), "version 2 of the Megatron index, expected 1"},
      {patched(idx, 17, "\x06"), "type code 6 is a floating-point type, not tokens"},
      {patched(idx, 17, "\x09"), "unknown type code 9, expected 1 to 5 or 8"},
      {patched(idx, 18, u64(uint64_t{1} << 62)),
       "the header promises 4611686018427387904 sequences and 3 document entries, more than its 82 "
       "bytes hold"},
      {patched(idx, 26, u64(UINT64_MAX)),
       "the header promises 2 sequences and 18446744073709551615 document entries, more than its "
       "82 bytes hold"},
      {idx + "abc", "3 bytes after the document entries, expected none"},
      {patched(idx, 34, raw<int32_t>({-3})), "sequence 0 has -3 tokens"},
      {patched(idx, 50, u64(8)),
       "sequence 1 starts at byte 8, expected 6: sequences must lie back to back"},
      {patched(idx, 38, raw<int32_t>({1})),
       "its sequences fill 8 bytes, but the .bin file has 10 bytes (do the two files belong "
       "together?)"},
      {patched(idx, 38, raw<int32_t>({9})),
       "its sequences need 24 bytes or more, but the .bin file has 10 bytes (do the two files "
       "belong together?)"},
      {patched(idx, 58, u64(1)), "the list of documents starts with 1, expected 0"},
      {patched(idx, 66, u64(3)), "document entry 1 is 3, expected 0 to 2"},
      {patched(idx, 74, u64(1)), "the last document ends at sequence 1 of 2"},
  };
  put("d.bin", megatron_bin());
  for (const Case& c : cases) {
    const std::string name = put("d.idx", c.content);
    EXPECT_EQ(invalid_argument([&] { TokenFile(name, {.format = "megatron"}); }),
              name + ": " + c.message);
  }
  std::filesystem::remove(dir_ / "d.bin");
  put("d.idx", idx);
  EXPECT_THROW(TokenFile(path("d.idx")), Error);
}

TEST_F(TokenFiles, MissingFilesAndDirectoriesAreErrors) {
  EXPECT_THROW(TokenFile(path("none.bin")), Error);
  EXPECT_EQ(invalid_argument([&] { TokenFile{dir_}; }), dir_.string() + ": not a regular file");
}

// Opens and reads whatever the bytes make of it; anything but an Error or a result is a bug.
void try_to_read(const std::string& name, const std::string& format) {
  try {
    const TokenFile file(name, {.format = format});
    if (file.size() < 1000) all(file);
    file.document_starts(0, file.size());
  } catch (const Error&) {
  }
}

TEST_F(TokenFiles, TruncationsAndDamagedHeadersNeverCrash) {
  const std::string zpp = zpp_file({1, 2, 256, 3}), llmc = llmc_file<uint16_t>({1, 2, 3});
  const std::string llama = llmc_file<uint32_t>({1, 2, 3});
  const auto damage = [this](const std::string& name, const std::string& format,
                             const std::string& content, size_t header) {
    const auto write = [&](const std::string& bytes) { try_to_read(put(name, bytes), format); };
    for (size_t n = 0; n < content.size(); ++n)
      if (n < 200 || n + 50 > content.size()) write(content.substr(0, n));
    for (size_t at = 0; at < header; ++at)
      for (int bits : {0x01, 0x80, 0xff}) {
        std::string flipped = content;
        flipped[at] = static_cast<char>(flipped[at] ^ bits);
        write(flipped);
      }
  };
  damage("a", "auto", zpp, 128);
  damage("a", "zpp", zpp, 16);
  damage("a", "auto", llmc, 16);
  damage("a", "llmc", llama, 16);
  damage("a", "raw_u16", raw<uint16_t>({1, 2, 3}), 6);
  put("d.bin", megatron_bin());
  damage("d.idx", "megatron", megatron_idx(), 82);
}

}  // namespace
}  // namespace zpp
