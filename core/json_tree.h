// JSON text as a tree that keeps what a configuration needs and a map would lose: the order of
// members, members that occur twice, and numbers as they were written.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace zpp {

struct JsonNode {
  enum class Kind { kNull, kBool, kInt, kDouble, kString, kList, kObject };

  Kind kind = Kind::kNull;
  bool boolean = false;
  int64_t integer = 0;  // kInt
  double number = 0;    // kInt, kDouble
  std::string text =
      {};  // kString: the value; kDouble: as written (integers beyond 64 bits come here)
  std::vector<JsonNode> items = {};
  std::vector<std::pair<std::string, JsonNode>> members = {};

  /// The last member with this name, or null.
  const JsonNode* find(std::string_view key) const;
  JsonNode* find(std::string_view key);
};

/// What went wrong and where; line and column count from 1.
struct JsonSyntaxError {
  int64_t line = 0, column = 0;
  std::string text = {};
};

enum class JsonComments { kAllowed, kRefused };

/// Reads one JSON value (no NaN, at most 100 levels deep). `error` says why there is no result.
std::optional<JsonNode> parse_json(std::string_view text, JsonComments comments,
                                   JsonSyntaxError* error);

/// JSON text of a node. `indent` < 0: on one line; else spaces per level, the first line not
/// indented.
std::string to_json(const JsonNode& node, int indent = -1);

/// `text` in quotes with the escapes that JSON wants.
std::string json_quote(std::string_view text);

/// Shortest text that reads back as the same number.
/// Errors:  kInternal unless finite.
std::string json_number(double value);

}  // namespace zpp
