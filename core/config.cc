#include "core/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "core/error.h"
#include "core/json_tree.h"

namespace zpp {
namespace {

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

// Insertions, deletions, replacements and swaps of neighbours that turn a into b, case aside.
size_t edit_distance(std::string_view first, std::string_view second) {
  const std::string a = lower_case(first), b = lower_case(second);
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      const size_t replace = d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, replace});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

std::string_view last_part(std::string_view path) {
  const size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? path : path.substr(dot + 1);
}

}  // namespace

std::optional<std::string> nearest_name(std::string_view name,
                                        const std::vector<std::string>& valid) {
  const auto closer = [name](const std::string& a, const std::string& b) {
    return edit_distance(name, a) < edit_distance(name, b);
  };
  const auto best = std::min_element(valid.begin(), valid.end(), closer);
  if (best == valid.end() || name.size() > 100) return std::nullopt;
  const size_t limit = std::max<size_t>(2, std::max(name.size(), best->size()) / 2);
  const size_t distance = edit_distance(name, *best);
  if (distance > limit || distance >= std::max(name.size(), best->size())) return std::nullopt;
  return *best;
}

void Problems::add(std::string_view path, std::string_view text) {
  entries_.push_back({std::string(path), std::string(text), {}, false});
}

void Problems::add_unknown_key(std::string_view path, std::vector<std::string> valid,
                               std::string_view note) {
  entries_.push_back({std::string(path), std::string(note), std::move(valid), true});
}

void Problems::declare(std::string_view path) {
  if (std::find(declared_.begin(), declared_.end(), path) == declared_.end())
    declared_.emplace_back(path);
}

std::string Problems::suggestion(const Entry& entry) const {
  const std::string_view key = last_part(entry.path);
  const std::string section = entry.path.substr(0, entry.path.size() - key.size());
  const std::optional<std::string> near = nearest_name(key, entry.valid);
  if (near && edit_distance(key, *near) <= 1)
    return fmt::format("did you mean \"{}{}\"?", section, *near);
  std::string elsewhere;
  for (const std::string& path : declared_) {
    if (last_part(path) != key) continue;
    elsewhere += fmt::format("{}\"{}\"", elsewhere.empty() ? "" : " or ", path);
  }
  if (!elsewhere.empty()) return fmt::format("did you mean {}?", elsewhere);
  if (near) return fmt::format("did you mean \"{}{}\"?", section, *near);
  if (entry.valid.empty()) return "no keys are known here";
  return fmt::format("valid keys here: {}", fmt::join(entry.valid, ", "));
}

std::vector<std::string> Problems::lines() const {
  std::vector<std::string> out;
  for (const Entry& e : entries_) {
    const std::string text = e.unknown_key ? "unknown key; " + suggestion(e) + e.text : e.text;
    out.push_back(e.path.empty() ? text : e.path + ": " + text);
  }
  return out;
}

void Problems::throw_if_any(std::string_view source) const {
  if (empty()) return;
  const std::vector<std::string> all = lines();
  if (all.size() == 1) throw Error(Code::kInvalidArgument, fmt::format("{}: {}", source, all[0]));
  throw Error(Code::kInvalidArgument,
              fmt::format("{}: {} problems\n  {}", source, all.size(), fmt::join(all, "\n  ")));
}

namespace {

// Builds the tree of all present values.
class Dumper : public Fields {
 public:
  explicit Dumper(JsonNode& object) : object_(object) { object_.kind = JsonNode::Kind::kObject; }

  Fields& operator()(std::string_view key, int64_t& v, std::string_view, int64_t,
                     int64_t) override {
    return put(key, integer(v));
  }
  Fields& operator()(std::string_view key, double& v, std::string_view, double, double) override {
    return put(key, number(v));
  }
  Fields& operator()(std::string_view key, bool& v, std::string_view) override {
    return put(key, {.kind = JsonNode::Kind::kBool, .boolean = v});
  }
  Fields& operator()(std::string_view key, std::string& v, std::string_view,
                     const std::vector<std::string_view>&) override {
    return put(key, string(v));
  }
  Fields& operator()(std::string_view key, std::optional<int64_t>& v, std::string_view, int64_t,
                     int64_t) override {
    return put(key, v ? integer(*v) : JsonNode());
  }
  Fields& operator()(std::string_view key, std::optional<double>& v, std::string_view, double,
                     double) override {
    return put(key, v ? number(*v) : JsonNode());
  }
  Fields& operator()(std::string_view key, std::vector<std::string>& v, std::string_view) override {
    JsonNode list{.kind = JsonNode::Kind::kList};
    for (const std::string& item : v) list.items.push_back(string(item));
    return put(key, std::move(list));
  }
  Fields& json(std::string_view key, std::string& v, std::string_view) override {
    if (v.empty()) return put(key, {.kind = JsonNode::Kind::kObject});
    JsonSyntaxError error;
    std::optional<JsonNode> node = parse_json(v, JsonComments::kAllowed, &error);
    if (!node)
      throw Error(Code::kInternal, fmt::format("{}: kept text is no JSON: {}", key, error.text));
    return put(key, std::move(*node));
  }
  Fields& refused(std::string_view, std::string_view) override { return *this; }

 protected:
  Fields& visit_section(std::string_view key, std::string_view, const Declare& declare) override {
    JsonNode node;
    Dumper inner(node);
    declare(inner);
    return put(key, std::move(node));
  }
  Fields& visit_list(std::string_view key, std::string_view, const List& list) override {
    JsonNode node{.kind = JsonNode::Kind::kList};
    for (size_t i = 0; i < list.size; ++i) {
      Dumper inner(node.items.emplace_back());
      list.item(i, inner);
    }
    return put(key, std::move(node));
  }

 private:
  static JsonNode integer(int64_t v) { return {.kind = JsonNode::Kind::kInt, .integer = v}; }
  static JsonNode number(double v) { return {.kind = JsonNode::Kind::kDouble, .number = v}; }
  static JsonNode string(const std::string& v) {
    return {.kind = JsonNode::Kind::kString, .text = v};
  }
  Fields& put(std::string_view key, JsonNode node) {
    object_.members.emplace_back(std::string(key), std::move(node));
    return *this;
  }

  JsonNode& object_;
};

}  // namespace

std::string dump_fields(const Fields::Declare& declare) {
  JsonNode root;
  Dumper dumper(root);
  declare(dumper);
  return to_json(root, 2) + "\n";
}

}  // namespace zpp
