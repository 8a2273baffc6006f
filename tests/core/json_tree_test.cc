#include "core/json_tree.h"

#include <gtest/gtest.h>

#include <limits>

#include "core/error.h"

namespace zpp {
namespace {

JsonNode parse(std::string_view text) {
  JsonSyntaxError error;
  const std::optional<JsonNode> node = parse_json(text, JsonComments::kAllowed, &error);
  EXPECT_TRUE(node.has_value()) << error.text;
  return node.value_or(JsonNode());
}

std::string error_of(std::string_view text, JsonComments comments = JsonComments::kAllowed) {
  JsonSyntaxError error;
  EXPECT_FALSE(parse_json(text, comments, &error).has_value()) << text;
  return std::to_string(error.line) + ":" + std::to_string(error.column) + " " + error.text;
}

TEST(JsonTree, KeepsOrderDuplicatesAndNumbersAsWritten) {
  const std::string text =
      R"({"z": 1, "a": 1e3, "z": 12.50, "b": [true, null, "x", {}], "c": -0.0})";
  EXPECT_EQ(to_json(parse(text)), text);
  EXPECT_EQ(parse(text).find("z")->number, 12.5);
  EXPECT_EQ(parse(text).find("none"), nullptr);
}

TEST(JsonTree, IntegersAreExactTo64BitsAndKeptAsTextBeyond) {
  EXPECT_EQ(parse("9223372036854775807").integer, INT64_MAX);
  EXPECT_EQ(parse("-9223372036854775808").integer, INT64_MIN);
  for (const char* big : {"9223372036854775808", "18446744073709551616", "-9223372036854775809"}) {
    EXPECT_EQ(parse(big).kind, JsonNode::Kind::kDouble) << big;
    EXPECT_EQ(to_json(parse(big)), big);
  }
}

TEST(JsonTree, IndentsWithoutTrailingSpace) {
  EXPECT_EQ(to_json(parse(R"({"a": [1, {"b": 2}], "c": {}, "d": []})"), 2), R"({
  "a": [
    1,
    {
      "b": 2
    }
  ],
  "c": {},
  "d": []
})");
}

TEST(JsonTree, SyntaxErrorsPointAtTheWord) {
  EXPECT_EQ(error_of("{\"a\":\n  tru}"),
            "2:3 'tru' is unexpected here (names and text are written in double quotes)");
  EXPECT_EQ(error_of("{\"a\": 1 \"b\": 2}"), "1:11 unexpected string literal; expected '}'");
  EXPECT_EQ(error_of("[.5]"), "1:2 '.5' is no JSON number: it has to start with a digit or '-'");
  EXPECT_EQ(error_of("['x']"), "1:2 'x': text is written in double quotes");
  EXPECT_EQ(error_of("[1] // c", JsonComments::kRefused).substr(0, 4), "1:5 ");
  EXPECT_EQ(error_of("/* x"), "1:5 a comment without its closing '*/'");
}

TEST(JsonTree, QuotesWhatJsonWantsQuoted) {
  EXPECT_EQ(json_quote("a\"\\\n\t\r\x01\xc3\xa9"), "\"a\\\"\\\\\\n\\t\\r\\u0001\xc3\xa9\"");
  EXPECT_EQ(parse(json_quote("a\"\\\n\t\r\x01")).text, "a\"\\\n\t\r\x01");
}

TEST(JsonTree, NumbersReadBackExactlyAndMustBeFinite) {
  for (double x : {0.1, 1e-5, 3.0, 1e300, -2.5e-310}) EXPECT_EQ(parse(json_number(x)).number, x);
  EXPECT_THROW(json_number(std::numeric_limits<double>::quiet_NaN()), Error);
  EXPECT_THROW(json_number(std::numeric_limits<double>::infinity()), Error);
}

}  // namespace
}  // namespace zpp
