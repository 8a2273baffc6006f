// Configuration by one declaration: what a struct says about its fields in `fields(Fields&)` is
// parsed, checked, documented and dumped by the visitors behind the functions below.
//
//   struct TrainConfig {
//     int64_t steps = 1000;
//     std::string recompute = "none";
//     void fields(Fields& f) {
//       f("steps", steps, "optimizer steps", 0, 1 << 30)
//        ("recompute", recompute, "what backward runs again", {"none", "unit"});
//     }
//   };
//   TrainConfig c = parse_config<TrainConfig>(read_file(path), {.source = path});
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace zpp {

/// Everything wrong with one configuration, gathered so that the user sees all of it at once.
class Problems {
 public:
  /// `path` names the key, "train.steps"; empty for the document as a whole.
  void add(std::string_view path, std::string_view text);
  /// The key at `path` is not one of `valid` (last parts, without the section); `note` ends the
  /// text. The nearest valid key is looked up when the text is made, because it may belong to a
  /// part that is parsed later.
  void add_unknown_key(std::string_view path, std::vector<std::string> valid,
                       std::string_view note = {});
  /// Makes the key at `path` known to the suggestions.
  void declare(std::string_view path);

  bool empty() const { return entries_.empty(); }
  /// One line per problem, "path: text", in the order they were found.
  std::vector<std::string> lines() const;
  /// Errors: kInvalidArgument with all lines under a heading that names `source`, if there is any
  /// problem.
  void throw_if_any(std::string_view source) const;

 private:
  struct Entry {
    std::string path, text;
    std::vector<std::string> valid;
    bool unknown_key = false;
  };
  std::string suggestion(const Entry& entry) const;

  std::vector<Entry> entries_;
  std::vector<std::string> declared_;
};

/// The entry of `valid` that differs least from `name`, if it is near enough to be what was meant.
std::optional<std::string> nearest_name(std::string_view name,
                                        const std::vector<std::string>& valid);

/// Visitor over the fields of a config struct. Documentation is one phrase, lower case, without a
/// full stop. Bounds are inclusive. An absent optional is null or simply not in the JSON.
class Fields {
 public:
  using Declare = std::function<void(Fields&)>;

  virtual ~Fields() = default;

  virtual Fields& operator()(std::string_view key, int64_t& v, std::string_view doc, int64_t lo,
                             int64_t hi) = 0;
  virtual Fields& operator()(std::string_view key, double& v, std::string_view doc, double lo,
                             double hi) = 0;
  virtual Fields& operator()(std::string_view key, bool& v, std::string_view doc) = 0;
  /// No `allowed` list: any text.
  virtual Fields& operator()(std::string_view key, std::string& v, std::string_view doc,
                             const std::vector<std::string_view>& allowed = {}) = 0;
  virtual Fields& operator()(std::string_view key, std::optional<int64_t>& v, std::string_view doc,
                             int64_t lo, int64_t hi) = 0;
  virtual Fields& operator()(std::string_view key, std::optional<double>& v, std::string_view doc,
                             double lo, double hi) = 0;
  virtual Fields& operator()(std::string_view key, std::vector<std::string>& v,
                             std::string_view doc) = 0;
  /// An object whose fields somebody else declares: `v` receives its JSON text, to be parsed by
  /// parse_fields with this key as the prefix. Stays as it is when the key is absent.
  virtual Fields& json(std::string_view key, std::string& v, std::string_view doc) = 0;
  /// A key that exists in other builds or later versions: its presence is a problem that says
  /// `why`.
  virtual Fields& refused(std::string_view key, std::string_view why) = 0;

  /// An object with fields of its own.
  template <class T>
  Fields& section(std::string_view key, T& v, std::string_view doc) {
    return visit_section(key, doc, [&v](Fields& f) { v.fields(f); });
  }
  /// A list of objects with fields of their own.
  template <class T>
  Fields& list(std::string_view key, std::vector<T>& v, std::string_view doc) {
    T blank;
    return visit_list(key, doc,
                      {.size = v.size(),
                       .resize = [&v](size_t n) { v.assign(n, T()); },
                       .item = [&v](size_t i, Fields& f) { v[i].fields(f); },
                       .blank = [&blank](Fields& f) { blank.fields(f); }});
  }

 protected:
  struct List {
    size_t size;
    std::function<void(size_t)> resize;
    std::function<void(size_t, Fields&)> item;
    Declare blank;  // fields of a default-constructed item
  };
  virtual Fields& visit_section(std::string_view key, std::string_view doc,
                                const Declare& declare) = 0;
  virtual Fields& visit_list(std::string_view key, std::string_view doc, const List& list) = 0;
};

struct ParseOptions {
  std::string source = "config";  // what messages call the text, usually a file name
  std::string prefix = {};        // path of this object in the whole configuration, e.g. "model"
  std::vector<std::string> overrides = {};  // "path.key=value" put in by apply_override
  std::vector<std::string> ignored = {};    // keys of this object that somebody else parses
};

/// Reads `text` (JSON; `//` comments allowed) into the declared fields. Fields without a key, and
/// those whose value is refused, keep theirs; an optional whose value is refused becomes absent.
/// Errors:  kInvalidArgument listing every problem with its full path: syntax (line and column),
///          unknown and duplicate keys, wrong types, values out of range or not in the allowed
///          list.
void parse_fields(std::string_view text, const Fields::Declare& declare,
                  const ParseOptions& options = {});

/// The same, but adds to `problems` instead of throwing, so that several parts and cross-checks
/// report together.
void parse_fields(std::string_view text, const Fields::Declare& declare,
                  const ParseOptions& options, Problems& problems);

template <class C>
C parse_config(std::string_view text, const ParseOptions& options = {}) {
  C c;
  parse_fields(
      text, [&c](Fields& f) { c.fields(f); }, options);
  return c;
}

template <class C>
C parse_config(std::string_view text, const ParseOptions& options, Problems& problems) {
  C c;
  parse_fields(
      text, [&c](Fields& f) { c.fields(f); }, options, problems);
  return c;
}

/// `text` with one value replaced or added: "train.steps=100". The value is read as JSON and, if it
/// is none, as a string; missing sections are made; list items are addressed by number,
/// "data.val.0.path=x". Comments are lost.
/// Errors:  kInvalidArgument if `text` is not JSON (named `source`), the assignment has no '=' or
///          its path goes through something that is not an object or list item.
std::string apply_override(std::string_view text, std::string_view assignment,
                           std::string_view source = "config");

/// All fields with their present values as indented JSON, in the order of declaration.
std::string dump_fields(const Fields::Declare& declare);

/// Reference text: each key with type, bounds or allowed values, default and documentation.
std::string document_fields(const Fields::Declare& declare, std::string_view prefix = {});

template <class C>
std::string dump_config(C c) {
  return dump_fields([&c](Fields& f) { c.fields(f); });
}

template <class C>
std::string document_config(std::string_view prefix = {}) {
  C c;
  return document_fields([&c](Fields& f) { c.fields(f); }, prefix);
}

}  // namespace zpp
