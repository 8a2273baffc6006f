#include "core/json_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace zpp {
namespace {

constexpr size_t kMaxDepth = 100;  // the tree is destroyed recursively

// Receives the parser's events and builds the tree.
class TreeBuilder : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return put({}); }
  bool boolean(bool value) override {
    return put({.kind = JsonNode::Kind::kBool, .boolean = value});
  }
  bool number_integer(number_integer_t value) override { return put_integer(value); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      return put_integer(static_cast<int64_t>(value));
    return put({.kind = JsonNode::Kind::kDouble,
                .number = static_cast<double>(value),
                .text = std::to_string(value)});
  }
  bool number_float(number_float_t value, const string_t& written) override {
    return put({.kind = JsonNode::Kind::kDouble, .number = value, .text = written});
  }
  bool string(string_t& value) override {
    return put({.kind = JsonNode::Kind::kString, .text = std::move(value)});
  }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return open(JsonNode::Kind::kObject); }
  bool start_array(size_t) override { return open(JsonNode::Kind::kList); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& value) override {
    open_.back()->members.emplace_back(std::move(value), JsonNode());
    return true;
  }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception& e) override {
    position_ = position;
    message_ = e.what();
    return false;
  }

  JsonNode take() { return std::move(root_); }
  bool too_deep() const { return too_deep_; }
  size_t position() const { return position_; }
  const std::string& message() const { return message_; }

 private:
  JsonNode* put_node(JsonNode node) {
    if (open_.empty()) return &(root_ = std::move(node));
    JsonNode& parent = *open_.back();
    if (parent.kind == JsonNode::Kind::kList) return &parent.items.emplace_back(std::move(node));
    return &(parent.members.back().second = std::move(node));
  }
  bool put(JsonNode node) {
    put_node(std::move(node));
    return true;
  }
  bool put_integer(int64_t value) {
    return put(
        {.kind = JsonNode::Kind::kInt, .integer = value, .number = static_cast<double>(value)});
  }
  // A parent's vector does not grow while one of its children is open, so the pointers stay good.
  bool open(JsonNode::Kind kind) {
    too_deep_ = open_.size() >= kMaxDepth;
    if (too_deep_) return false;
    open_.push_back(put_node({.kind = kind}));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  JsonNode root_;
  std::vector<JsonNode*> open_;
  bool too_deep_ = false;
  size_t position_ = 0;
  std::string message_;
};

void locate(std::string_view text, size_t at, JsonSyntaxError& error) {
  const std::string_view before = text.substr(0, at);
  const size_t newline = before.rfind('\n');
  error.line = 1 + std::count(before.begin(), before.end(), '\n');
  error.column =
      static_cast<int64_t>(newline == std::string_view::npos ? at : at - newline - 1) + 1;
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// The run of letters, digits, '_', '+', '-', '.' and ' around a position.
std::string_view word_at(std::string_view text, size_t at) {
  constexpr std::string_view kWord =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_+-.'";
  if (at >= text.size() || !contains(kWord, text.substr(at, 1))) return {};
  const size_t left = text.find_last_not_of(kWord, at);
  const size_t begin = left == std::string_view::npos ? 0 : left + 1;
  const size_t end = text.find_first_not_of(kWord, at);
  return text.substr(begin, (end == std::string_view::npos ? text.size() : end) - begin);
}

std::string describe_word(std::string_view word) {
  for (std::string_view constant : {"true", "false", "null"})
    if (word.substr(1) == constant.substr(1))
      return fmt::format("'{}' is written {}", word, constant);
  if (word == "None") return "'None' is written null";
  for (std::string_view name : {"nan", "inf"}) {
    std::string lower(word);
    for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (lower.find(name) <= 1)
      return fmt::format("'{}' is no JSON value: there is no NaN or Infinity in JSON", word);
  }
  if (word.front() == '\'') return fmt::format("{}: text is written in double quotes", word);
  if (word.front() == '.' || word.front() == '+')
    return fmt::format("'{}' is no JSON number: it has to start with a digit or '-'", word);
  return fmt::format("'{}' is unexpected here (names and text are written in double quotes)", word);
}

std::string describe(std::string_view text, size_t at, std::string_view word,
                     std::string_view message) {
  if (contains(message, "number overflow")) return fmt::format("the number {} is too large", word);
  if (contains(message, "UTF-8")) return "a string is not valid UTF-8";
  if (contains(message, "missing closing quote")) return "a string without its closing quote";
  if (contains(message, "missing closing '*/'")) return "a comment without its closing '*/'";
  if (contains(message, "control character"))
    return "a string that goes over the end of its line, or holds another control character";
  if (contains(message, "unexpected end of input"))
    return "the text ends too early: a value, closing brace or bracket is missing";
  const std::string_view before = text.substr(0, at);
  const size_t last = before.find_last_not_of(" \t\r\n");
  const char found = at < text.size() ? text[at] : '\0';
  if (last != std::string_view::npos && before[last] == ',' && (found == '}' || found == ']'))
    return "a comma before a closing brace or bracket: remove it";
  if (contains(message, "invalid") && !word.empty()) return describe_word(word);
  const size_t sentence = message.find(" - ");
  return std::string(sentence == std::string_view::npos ? message : message.substr(sentence + 3));
}

JsonSyntaxError syntax_error(std::string_view text, const TreeBuilder& builder) {
  const std::string_view message = builder.message();
  // The parser's position counts the bytes read, the offending one included.
  size_t at = std::min(builder.position() > 0 ? builder.position() - 1 : 0, text.size());
  std::string_view word = word_at(text, at);
  if (word.empty() && at > 0) word = word_at(text, at - 1);
  const bool about_word = contains(message, "invalid literal") || contains(message, "number");
  if (about_word && !word.empty()) at = static_cast<size_t>(word.data() - text.data());
  JsonSyntaxError error;
  locate(text, at, error);
  error.text = describe(text, at, about_word ? word : std::string_view(), message);
  return error;
}

}  // namespace

const JsonNode* JsonNode::find(std::string_view key) const {
  for (auto it = members.rbegin(); it != members.rend(); ++it)
    if (it->first == key) return &it->second;
  return nullptr;
}

JsonNode* JsonNode::find(std::string_view key) {
  return const_cast<JsonNode*>(std::as_const(*this).find(key));
}

std::optional<JsonNode> parse_json(std::string_view text, JsonComments comments,
                                   JsonSyntaxError* error) {
  TreeBuilder builder;
  const bool ok = nlohmann::json::sax_parse(text.begin(), text.end(), &builder,
                                            nlohmann::json::input_format_t::json, true,
                                            comments == JsonComments::kAllowed);
  if (ok) return builder.take();
  if (builder.too_deep()) {
    *error = {.text =
                  fmt::format("lists and objects are nested more than {} levels deep", kMaxDepth)};
    return std::nullopt;
  }
  *error = syntax_error(text, builder);
  return std::nullopt;
}

std::string json_quote(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\r':
        out += "\\r";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20)
          out += fmt::format("\\u{:04x}", static_cast<int>(c));
        else
          out += c;
    }
  }
  return out + '"';
}

std::string json_number(double value) {
  if (!std::isfinite(value)) throw Error(Code::kInternal, "JSON cannot hold NaN or Infinity");
  return fmt::format("{}", value);
}

namespace {

void append(const JsonNode& node, int indent, int level, std::string& out);

void append_line(int indent, int level, std::string& out) {
  if (indent < 0) return;
  out += '\n';
  out.append(static_cast<size_t>(indent) * static_cast<size_t>(level), ' ');
}

void append_list(const JsonNode& node, int indent, int level, std::string& out) {
  out += '[';
  for (size_t i = 0; i < node.items.size(); ++i) {
    if (i > 0) out += indent < 0 ? ", " : ",";
    append_line(indent, level + 1, out);
    append(node.items[i], indent, level + 1, out);
  }
  if (!node.items.empty()) append_line(indent, level, out);
  out += ']';
}

void append_object(const JsonNode& node, int indent, int level, std::string& out) {
  out += '{';
  for (size_t i = 0; i < node.members.size(); ++i) {
    if (i > 0) out += indent < 0 ? ", " : ",";
    append_line(indent, level + 1, out);
    out += json_quote(node.members[i].first) + ": ";
    append(node.members[i].second, indent, level + 1, out);
  }
  if (!node.members.empty()) append_line(indent, level, out);
  out += '}';
}

void append(const JsonNode& node, int indent, int level, std::string& out) {
  switch (node.kind) {
    case JsonNode::Kind::kNull:
      out += "null";
      break;
    case JsonNode::Kind::kBool:
      out += node.boolean ? "true" : "false";
      break;
    case JsonNode::Kind::kInt:
      out += std::to_string(node.integer);
      break;
    case JsonNode::Kind::kDouble:
      out += node.text.empty() ? json_number(node.number) : node.text;
      break;
    case JsonNode::Kind::kString:
      out += json_quote(node.text);
      break;
    case JsonNode::Kind::kList:
      append_list(node, indent, level, out);
      break;
    case JsonNode::Kind::kObject:
      append_object(node, indent, level, out);
      break;
  }
}

}  // namespace

std::string to_json(const JsonNode& node, int indent) {
  std::string out;
  append(node, indent, 0, out);
  return out;
}

}  // namespace zpp
