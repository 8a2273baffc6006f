// Reading a configuration: parse_fields and apply_override.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "core/config.h"
#include "core/error.h"
#include "core/json_tree.h"

namespace zpp {
namespace {

using Kind = JsonNode::Kind;

std::string join_path(std::string_view section, std::string_view key) {
  return section.empty() ? std::string(key) : fmt::format("{}.{}", section, key);
}

std::string found_text(const JsonNode& node) {
  const std::string shown = node.text.size() <= 60 ? node.text : node.text.substr(0, 57) + "...";
  switch (node.kind) {
    case Kind::kNull:
      return "null";
    case Kind::kBool:
      return node.boolean ? "true" : "false";
    case Kind::kInt:
      return std::to_string(node.integer);
    case Kind::kDouble:
      return shown;
    case Kind::kString:
      return "the text " + json_quote(shown);
    case Kind::kList:
      return fmt::format("a list of {}", node.items.size());
    case Kind::kObject:
      return "an object";
  }
  return "";
}

// Integers that were written as 1e3 or 12.0 count when the double holds them exactly.
std::optional<int64_t> exact_integer(const JsonNode& node) {
  if (node.kind == Kind::kInt) return node.integer;
  constexpr double kExact = 9007199254740992.0;  // 2^53
  if (node.kind == Kind::kDouble && std::abs(node.number) <= kExact &&
      node.number == std::trunc(node.number))
    return static_cast<int64_t>(node.number);
  return std::nullopt;
}

// Declares the paths of all fields, also of those whose section is missing in the text.
class PathCollector : public Fields {
 public:
  PathCollector(std::string prefix, Problems& problems)
      : prefix_(std::move(prefix)), problems_(problems) {}

  Fields& operator()(std::string_view key, int64_t&, std::string_view, int64_t, int64_t) override {
    return add(key);
  }
  Fields& operator()(std::string_view key, double&, std::string_view, double, double) override {
    return add(key);
  }
  Fields& operator()(std::string_view key, bool&, std::string_view) override { return add(key); }
  Fields& operator()(std::string_view key, std::string&, std::string_view,
                     const std::vector<std::string_view>&) override {
    return add(key);
  }
  Fields& operator()(std::string_view key, std::optional<int64_t>&, std::string_view, int64_t,
                     int64_t) override {
    return add(key);
  }
  Fields& operator()(std::string_view key, std::optional<double>&, std::string_view, double,
                     double) override {
    return add(key);
  }
  Fields& operator()(std::string_view key, std::vector<std::string>&, std::string_view) override {
    return add(key);
  }
  Fields& json(std::string_view key, std::string&, std::string_view) override { return add(key); }
  Fields& refused(std::string_view, std::string_view) override { return *this; }

 protected:
  Fields& visit_section(std::string_view key, std::string_view, const Declare& declare) override {
    add(key);
    PathCollector inner(join_path(prefix_, key), problems_);
    declare(inner);
    return *this;
  }
  Fields& visit_list(std::string_view key, std::string_view, const List& list) override {
    add(key);
    PathCollector inner(join_path(prefix_, key) + ".0", problems_);
    list.blank(inner);
    return *this;
  }

 private:
  Fields& add(std::string_view key) {
    problems_.declare(join_path(prefix_, key));
    return *this;
  }

  const std::string prefix_;
  Problems& problems_;
};

class Parser : public Fields {
 public:
  Parser(const JsonNode& object, std::string path, const ParseOptions& options, Problems& problems)
      : object_(object), path_(std::move(path)), options_(options), problems_(problems) {}

  Fields& operator()(std::string_view key, int64_t& v, std::string_view, int64_t lo,
                     int64_t hi) override {
    if (const JsonNode* node = take(key)) integer(key, *node, v, lo, hi);
    return *this;
  }
  Fields& operator()(std::string_view key, double& v, std::string_view, double lo,
                     double hi) override {
    if (const JsonNode* node = take(key)) number(key, *node, v, lo, hi);
    return *this;
  }
  Fields& operator()(std::string_view key, bool& v, std::string_view) override {
    const JsonNode* node = take(key);
    if (node == nullptr) return *this;
    if (node->kind != Kind::kBool) return wrong(key, "true or false", *node);
    v = node->boolean;
    return *this;
  }
  Fields& operator()(std::string_view key, std::string& v, std::string_view,
                     const std::vector<std::string_view>& allowed) override {
    if (const JsonNode* node = take(key)) text(key, *node, v, allowed);
    return *this;
  }
  Fields& operator()(std::string_view key, std::optional<int64_t>& v, std::string_view, int64_t lo,
                     int64_t hi) override {
    const JsonNode* node = take(key);
    if (node == nullptr) return *this;
    v.reset();
    // A value that is refused stays absent: whoever reads on must not meet one out of range.
    int64_t value = 0;
    if (node->kind != Kind::kNull && integer(key, *node, value, lo, hi)) v = value;
    return *this;
  }
  Fields& operator()(std::string_view key, std::optional<double>& v, std::string_view, double lo,
                     double hi) override {
    const JsonNode* node = take(key);
    if (node == nullptr) return *this;
    v.reset();
    double value = 0;
    if (node->kind != Kind::kNull && number(key, *node, value, lo, hi)) v = value;
    return *this;
  }
  Fields& operator()(std::string_view key, std::vector<std::string>& v, std::string_view) override {
    const JsonNode* node = take(key);
    if (node == nullptr) return *this;
    if (node->kind != Kind::kList) return wrong(key, "a list of texts", *node);
    v.assign(node->items.size(), {});
    for (size_t i = 0; i < v.size(); ++i)
      text(join_path(key, std::to_string(i)), node->items[i], v[i], {});
    return *this;
  }
  Fields& json(std::string_view key, std::string& v, std::string_view) override {
    const JsonNode* node = take(key);
    if (node == nullptr) return *this;
    if (node->kind != Kind::kObject) return wrong(key, "an object", *node);
    v = to_json(*node);
    return *this;
  }
  Fields& refused(std::string_view key, std::string_view why) override {
    if (take(key) != nullptr) problem(key, std::string(why));
    keys_.pop_back();  // never a suggestion
    return *this;
  }

  /// Call after all fields: what is left is unknown.
  void finish() {
    std::set<std::string_view> seen;
    for (const auto& [key, node] : object_.members) {
      if (!seen.insert(key).second) {
        problem(key, "given twice in the same object");
      } else if (std::find(taken_.begin(), taken_.end(), key) == taken_.end()) {
        unknown(key);
      }
    }
  }

 protected:
  Fields& visit_section(std::string_view key, std::string_view, const Declare& declare) override {
    const JsonNode* node = take(key);
    if (node == nullptr) return *this;
    if (node->kind != Kind::kObject) return wrong(key, "an object", *node);
    parse_inner(join_path(path_, key), *node, declare);
    return *this;
  }
  Fields& visit_list(std::string_view key, std::string_view, const List& list) override {
    const JsonNode* node = take(key);
    if (node == nullptr) return *this;
    if (node->kind != Kind::kList) return wrong(key, "a list of objects", *node);
    list.resize(node->items.size());
    for (size_t i = 0; i < node->items.size(); ++i) {
      const std::string item_key = join_path(key, std::to_string(i));
      if (node->items[i].kind != Kind::kObject) {
        wrong(item_key, "an object", node->items[i]);
        continue;
      }
      parse_inner(join_path(path_, item_key), node->items[i],
                  [&list, i](Fields& f) { list.item(i, f); });
    }
    return *this;
  }

 private:
  const JsonNode* take(std::string_view key) {
    keys_.emplace_back(key);
    taken_.emplace_back(key);
    return object_.find(key);
  }

  void parse_inner(std::string path, const JsonNode& node, const Declare& declare) {
    Parser inner(node, std::move(path), options_, problems_);
    declare(inner);
    inner.finish();
  }

  /// Stores the value of `node` in `v`, or reports why it cannot be one and returns false.
  bool integer(std::string_view key, const JsonNode& node, int64_t& v, int64_t lo, int64_t hi) {
    const std::string range = fmt::format("an integer from {} to {}", lo, hi);
    const std::optional<int64_t> value = exact_integer(node);
    if (value && *value >= lo && *value <= hi) {
      v = *value;
      return true;
    }
    if (node.kind == Kind::kDouble &&
        node.text.find_first_not_of("-0123456789") == std::string::npos) {
      problem(key,
              fmt::format("expected {}, found {}, which does not fit 64 bits", range, node.text));
    } else {
      wrong(key, range, node);
    }
    return false;
  }

  bool number(std::string_view key, const JsonNode& node, double& v, double lo, double hi) {
    const bool is_number = node.kind == Kind::kInt || node.kind == Kind::kDouble;
    if (is_number && node.number >= lo && node.number <= hi) {
      v = node.number;
      return true;
    }
    wrong(key, fmt::format("a number from {} to {}", lo, hi), node);
    return false;
  }

  void text(std::string_view key, const JsonNode& node, std::string& v,
            const std::vector<std::string_view>& allowed) {
    if (node.kind != Kind::kString) {
      wrong(key, allowed.empty() ? "a text" : fmt::format("one of {}", fmt::join(allowed, ", ")),
            node);
    } else if (!allowed.empty() &&
               std::find(allowed.begin(), allowed.end(), node.text) == allowed.end()) {
      const std::optional<std::string> near =
          nearest_name(node.text, std::vector<std::string>(allowed.begin(), allowed.end()));
      problem(key, fmt::format("expected one of {}, found {}{}", fmt::join(allowed, ", "),
                               json_quote(node.text),
                               near ? fmt::format("; did you mean \"{}\"?", *near) : ""));
    } else {
      v = node.text;
    }
  }

  Fields& wrong(std::string_view key, std::string_view expected, const JsonNode& node) {
    return problem(key, fmt::format("expected {}, found {}", expected, found_text(node)));
  }

  Fields& problem(std::string_view key, const std::string& what) {
    const std::string path = join_path(path_, key);
    problems_.add(path, what + override_note(path, false));
    return *this;
  }

  void unknown(const std::string& key) {
    const std::string path = join_path(path_, key);
    problems_.add_unknown_key(path, keys_, override_note(path, true));
  }

  // An unknown section that an override made is the override's mistake too.
  std::string override_note(const std::string& path, bool inside) const {
    for (const std::string& assignment : options_.overrides) {
      const std::string target = assignment.substr(0, assignment.find('='));
      if (target == path || path.starts_with(target + ".") ||
          (inside && target.starts_with(path + ".")))
        return fmt::format(" (from --set {})", assignment);
    }
    return "";
  }

  const JsonNode& object_;
  const std::string path_;
  const ParseOptions& options_;
  Problems& problems_;
  std::vector<std::string> keys_, taken_;
};

std::string at_line(const JsonSyntaxError& error) {
  if (error.line == 0) return error.text;
  return fmt::format("line {}, column {}: {}", error.line, error.column, error.text);
}

std::vector<std::string> split_path(std::string_view path) {
  std::vector<std::string> parts;
  while (true) {
    const size_t dot = path.find('.');
    parts.emplace_back(path.substr(0, dot));
    if (dot == std::string_view::npos) return parts;
    path.remove_prefix(dot + 1);
  }
}

std::optional<size_t> list_index(const std::string& part) {
  if (part.empty() || part.size() > 6 || part.find_first_not_of("0123456789") != std::string::npos)
    return std::nullopt;
  return std::stoul(part);
}

// The child of `node` called `part`, made if it can be made; null if it cannot.
JsonNode* child_for_override(JsonNode& node, const std::string& part) {
  const std::optional<size_t> index = list_index(part);
  if (node.kind == Kind::kNull) node.kind = index ? Kind::kList : Kind::kObject;
  if (node.kind == Kind::kList && index && *index <= node.items.size()) {
    if (*index == node.items.size()) node.items.emplace_back();
    return &node.items[*index];
  }
  if (node.kind != Kind::kObject) return nullptr;
  if (JsonNode* child = node.find(part)) return child;
  return &node.members.emplace_back(part, JsonNode()).second;
}

}  // namespace

void parse_fields(std::string_view text, const Fields::Declare& declare,
                  const ParseOptions& options, Problems& problems) {
  PathCollector collector(options.prefix, problems);
  declare(collector);
  JsonSyntaxError error;
  std::optional<JsonNode> root = parse_json(text, JsonComments::kAllowed, &error);
  if (!root) return problems.add(options.prefix, at_line(error));
  if (root->kind != Kind::kObject)
    return problems.add(options.prefix, "expected an object, found " + found_text(*root));
  std::erase_if(root->members, [&options](const auto& member) {
    return std::find(options.ignored.begin(), options.ignored.end(), member.first) !=
           options.ignored.end();
  });
  Parser parser(*root, options.prefix, options, problems);
  declare(parser);
  parser.finish();
}

void parse_fields(std::string_view text, const Fields::Declare& declare,
                  const ParseOptions& options) {
  Problems problems;
  parse_fields(text, declare, options, problems);
  problems.throw_if_any(options.source);
}

std::string apply_override(std::string_view text, std::string_view assignment,
                           std::string_view source) {
  const size_t equals = assignment.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    throw Error(Code::kInvalidArgument,
                fmt::format("--set: expected path.key=value, found \"{}\"", assignment));
  }
  JsonSyntaxError error;
  std::optional<JsonNode> root = parse_json(text, JsonComments::kAllowed, &error);
  if (!root) throw Error(Code::kInvalidArgument, fmt::format("{}: {}", source, at_line(error)));
  JsonNode* node = &*root;
  std::string path;
  for (const std::string& part : split_path(assignment.substr(0, equals))) {
    JsonNode* child = part.empty() ? nullptr : child_for_override(*node, part);
    if (child == nullptr) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("--set {}: there is no \"{}\" in {}, which is {}", assignment, part,
                              path.empty() ? std::string(source) : path, found_text(*node)));
    }
    path = join_path(path, part);
    node = child;
  }
  const std::string_view value = assignment.substr(equals + 1);
  std::optional<JsonNode> parsed = parse_json(value, JsonComments::kRefused, &error);
  if (!parsed) {
    parsed.emplace();
    parsed->kind = Kind::kString;
    parsed->text = value;
  }
  *node = std::move(*parsed);
  return to_json(*root, 2);
}

}  // namespace zpp
