#include "core/data/tokenize.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/data/token_file.h"
#include "core/data/tokenizer.h"
#include "tests/core/data/test_files.h"

namespace zpp {
namespace {

using testing_data::invalid_argument;

class Tokenize : public testing_data::DataTest {
 protected:
  std::string decoded(const std::string& name) const {
    const TokenFile file(path(name));
    std::vector<int32_t> ids(static_cast<size_t>(file.size()));
    file.read(0, ids);
    return ByteTokenizer().decode(ids);
  }
  TokenizeReport run(const std::vector<std::filesystem::path>& inputs, double val_fraction = 0,
                     const TextOptions& text = {}) const {
    return tokenize({.inputs = inputs,
                     .output = path("train.bin"),
                     .val_output = val_fraction > 0 ? path("val.bin") : "",
                     .val_fraction = val_fraction,
                     .text = text});
  }
};

constexpr const char* kEnd = "<|endoftext|>";

// Splits at the end-of-text marks.
std::vector<std::string> documents(const std::string& text) {
  std::vector<std::string> out;
  for (size_t begin = 0, at; (at = text.find(kEnd, begin)) != std::string::npos;
       begin = at + std::string(kEnd).size())
    out.push_back(text.substr(begin, at - begin));
  return out;
}

TEST_F(Tokenize, EachFileIsADocument) {
  const TokenizeReport report =
      run({put("a.txt", "one\n"), put("empty.txt", ""), put("b.txt", "two\xff")});
  EXPECT_EQ(decoded("train.bin"), std::string("one\n") + kEnd + "two\xff" + kEnd);
  EXPECT_EQ(report.bytes, 8);
  EXPECT_EQ(report.train.tokens, 10);
  EXPECT_EQ(report.train.documents, 2);
  const TokenFile file(path("train.bin"));
  EXPECT_EQ(file.info().documents, 2);
  EXPECT_EQ(file.info().vocab, 257);
  EXPECT_EQ(file.info().eot, 256);
  EXPECT_EQ(file.info().tokenizer, "byte");
}

TEST_F(Tokenize, ASeparatorEndsDocumentsWhereverTheChunksOfReadingFall) {
  const std::string long_text(1'048'573, 'x');  // the separator straddles the first MiB
  run({put("a.txt", long_text + "<sep>b<sep><sep>c<sepp")}, 0, {.separator = "<sep>"});
  EXPECT_EQ(documents(decoded("train.bin")), (std::vector<std::string>{long_text, "b", "c<sepp"}));
}

TEST_F(Tokenize, JsonLinesAreDocuments) {
  run({put("a.jsonl",
           "{\"text\": \"a\\nb\\u00e9\", \"id\": 1}\n\n{\"text\": \"\"}\r\n{\"text\": \"last\"}")});
  EXPECT_EQ(documents(decoded("train.bin")), (std::vector<std::string>{"a\nb\xc3\xa9", "last"}));
  run({put("b.txt", "{\"body\": \"x\"}\n")}, 0, {.format = "jsonl", .text_key = "body"});
  EXPECT_EQ(decoded("train.bin"), std::string("x") + kEnd);
}

TEST_F(Tokenize, AJsonLineLongerThanAChunkIsRead) {
  const std::string text(3'000'000, 'y');
  run({put("a.jsonl", "{\"text\": \"" + text + "\"}\n")});
  EXPECT_EQ(documents(decoded("train.bin")), std::vector<std::string>{text});
}

TEST_F(Tokenize, HoldsOutAnEvenShareOfDocuments) {
  std::string lines;
  for (int i = 0; i < 200; ++i) lines += "{\"text\": \"doc" + std::to_string(i) + "\"}\n";
  const TokenizeReport report = run({put("a.jsonl", lines)}, 0.05);
  EXPECT_EQ(report.train.documents, 190);
  EXPECT_EQ(report.val.documents, 10);
  std::vector<std::string> train = documents(decoded("train.bin")),
                           val = documents(decoded("val.bin"));
  EXPECT_EQ(val.front(), "doc9");
  EXPECT_EQ(val.back(), "doc189");
  train.insert(train.end(), val.begin(), val.end());
  std::sort(train.begin(), train.end());
  EXPECT_EQ(std::unique(train.begin(), train.end()), train.end());
  EXPECT_EQ(train.size(), 200u);
}

TEST_F(Tokenize, HoldsOutParagraphBlocksOfTextWithoutDocuments) {
  std::string text;
  for (int i = 0; text.size() < 1'000'000; ++i)
    text += "Paragraph " + std::to_string(i) + ".\nSecond line.\n\n";
  const TokenizeReport report = run({put("a.txt", text)}, 0.1);
  const double share = static_cast<double>(report.val.tokens) / static_cast<double>(text.size());
  EXPECT_NEAR(share, 0.1, 0.02);
  const std::vector<std::string> train = documents(decoded("train.bin")),
                                 val = documents(decoded("val.bin"));
  size_t bytes = 0;
  for (const auto* part : {&train, &val}) {
    for (const std::string& document : *part) {
      EXPECT_TRUE(document.starts_with("Paragraph ")) << document.substr(0, 30);
      EXPECT_TRUE(document.ends_with("\n\n"));
      EXPECT_NE(text.find(document), std::string::npos);
      bytes += document.size();
    }
  }
  EXPECT_EQ(bytes, text.size());
  EXPECT_EQ(static_cast<int64_t>(train.size()), report.train.documents);
}

TEST_F(Tokenize, TextWithoutBlankLinesOrLinesIsCutBetweenCharacters) {
  std::string text;
  while (text.size() < 6'000'000) text += "\xe2\x82\xac";
  run({put("a.txt", text)}, 0.3);
  for (const char* name : {"train.bin", "val.bin"})
    for (const std::string& document : documents(decoded(name))) {
      EXPECT_EQ(document.size() % 3, 0u);
      EXPECT_TRUE(document.starts_with("\xe2"));
    }
}

TEST_F(Tokenize, BadInputNamesTheFileAndTheLine) {
  struct Case {
    std::string name, content, message;
  };
  const std::vector<Case> cases = {
      {"a.jsonl", "{\"text\": \"a\"}\n{\"text\": }\n",
       "line 2: column 10: unexpected '}'; expected '[', '{', or a literal"},
      {"b.jsonl", "[1]\n", "line 1: expected a JSON object"},
      {"c.jsonl", "{\"body\": \"a\", \"id\": 1}\n",
       "line 1: no \"text\" in the object (it has: body, id); --text-key names the one that holds "
       "the text"},
      {"d.jsonl", "{\"text\": 5}\n", "line 1: \"text\" is not a text"},
      {"e.txt", "\x1f\x8b\x08", "is compressed: zcat FILE | zpp-data tokenize - ..."},
  };
  for (const Case& c : cases) {
    const std::string name = put(c.name, c.content);
    EXPECT_EQ(invalid_argument([&] { run({name}); }), name + ": " + c.message);
    EXPECT_FALSE(std::filesystem::exists(path("train.bin")));
  }
}

TEST_F(Tokenize, ContradictingOptionsHaveTheirOwnMessages) {
  const std::string a = put("a.txt", "some text"), out = path("o.bin");
  const auto error = [](const TokenizeOptions& options) {
    return invalid_argument([&] { tokenize(options); });
  };
  EXPECT_EQ(error({.inputs = {}, .output = out}), "tokenize: no input is given");
  EXPECT_EQ(error({.inputs = {a}, .output = ""}), "tokenize: no output is given");
  EXPECT_EQ(error({.inputs = {a}, .output = a}), "tokenize: " + a + " is both input and output");
  EXPECT_EQ(
      error({.inputs = {a}, .output = out, .val_fraction = 0.1}),
      "tokenize: a held-out share and a file for it go together: --val-fraction with --val-output");
  EXPECT_EQ(error({.inputs = {a}, .output = out, .val_output = out, .val_fraction = 0.1}),
            "tokenize: " + out + " is given for both outputs");
  EXPECT_EQ(error({.inputs = {a}, .output = out, .val_output = path("v"), .val_fraction = 1.0}),
            "tokenize: the held-out share is 1, expected 0 to less than 1");
  EXPECT_EQ(error({.inputs = {a}, .output = out, .text = {.format = "xml"}}),
            "unknown input format \"xml\", expected auto, text or jsonl");
  EXPECT_EQ(error({.inputs = {put("empty", "")}, .output = out}),
            "tokenize: the input has no text");
  EXPECT_EQ(error({.inputs = {a}, .output = out, .val_output = path("v"), .val_fraction = 0.01}),
            "tokenize: the input is too small to hold out a share of 0.01 of its documents or "
            "blocks of 16 KiB; "
            "give a file of its own for validation");
  EXPECT_THROW(tokenize({.inputs = {path("none")}, .output = out}), Error);
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST_F(Tokenize, ProgressIsReported) {
  const std::string a = put("a.txt", std::string(3 << 20, 'a'));
  std::vector<int64_t> seen;
  tokenize({.inputs = {a}, .output = path("o.bin"), .on_progress = [&](int64_t bytes) {
              seen.push_back(bytes);
            }});
  EXPECT_EQ(seen, (std::vector<int64_t>{1 << 20, 2 << 20, 3 << 20}));
}

TEST(Unescape, KnowsTheUsualEscapesAndRefusesOthers) {
  EXPECT_EQ(unescape("a\\n\\t\\r\\\\\\x41b"), "a\n\t\r\\Ab");
  for (const char* bad : {"\\", "\\q", "\\x4", "\\xzz"}) EXPECT_THROW(unescape(bad), Error) << bad;
}

}  // namespace
}  // namespace zpp
