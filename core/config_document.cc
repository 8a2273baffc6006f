// The reference text of a configuration: document_fields.
#include <fmt/format.h>

#include <limits>

#include "core/config.h"
#include "core/json_tree.h"

namespace zpp {
namespace {

// Bounds that are only there because a type ends are not worth reading.
template <class T>
std::string bounds_text(T lo, T hi) {
  const bool no_lo = lo <= std::numeric_limits<T>::lowest();
  const bool no_hi = hi >= std::numeric_limits<T>::max();
  if (no_lo && no_hi) return "";
  if (no_lo) return fmt::format(", at most {}", hi);
  if (no_hi) return fmt::format(", at least {}", lo);
  return fmt::format(", {} to {}", lo, hi);
}

class Documenter : public Fields {
 public:
  Documenter(std::string prefix, std::string& out) : prefix_(std::move(prefix)), out_(out) {}

  Fields& operator()(std::string_view key, int64_t& v, std::string_view doc, int64_t lo,
                     int64_t hi) override {
    return line(key, fmt::format("integer{}, default {}", bounds_text(lo, hi), v), doc);
  }
  Fields& operator()(std::string_view key, double& v, std::string_view doc, double lo,
                     double hi) override {
    return line(key, fmt::format("number{}, default {}", bounds_text(lo, hi), v), doc);
  }
  Fields& operator()(std::string_view key, bool& v, std::string_view doc) override {
    return line(key, fmt::format("true or false, default {}", v), doc);
  }
  Fields& operator()(std::string_view key, std::string& v, std::string_view doc,
                     const std::vector<std::string_view>& allowed) override {
    const std::string type =
        allowed.empty() ? "text" : fmt::format("one of {}", fmt::join(allowed, ", "));
    return line(key, fmt::format("{}, default {}", type, json_quote(v)), doc);
  }
  Fields& operator()(std::string_view key, std::optional<int64_t>& v, std::string_view doc,
                     int64_t lo, int64_t hi) override {
    const std::string value = v ? fmt::format("{}", *v) : "null";
    return line(key, fmt::format("integer{} or null, default {}", bounds_text(lo, hi), value), doc);
  }
  Fields& operator()(std::string_view key, std::optional<double>& v, std::string_view doc,
                     double lo, double hi) override {
    const std::string value = v ? fmt::format("{}", *v) : "null";
    return line(key, fmt::format("number{} or null, default {}", bounds_text(lo, hi), value), doc);
  }
  Fields& operator()(std::string_view key, std::vector<std::string>& v,
                     std::string_view doc) override {
    std::string value;
    for (const std::string& item : v) value += (value.empty() ? "" : ", ") + json_quote(item);
    return line(key, fmt::format("list of texts, default [{}]", value), doc);
  }
  Fields& json(std::string_view key, std::string&, std::string_view doc) override {
    return heading(key, "object", doc);
  }
  Fields& refused(std::string_view key, std::string_view why) override {
    return heading(key, "not available", why);
  }

 protected:
  Fields& visit_section(std::string_view key, std::string_view doc,
                        const Declare& declare) override {
    heading(key, "section", doc);
    Documenter inner(prefix_ + std::string(key) + ".", out_);
    declare(inner);
    return *this;
  }
  Fields& visit_list(std::string_view key, std::string_view doc, const List& list) override {
    line(key, "list of objects", doc);
    Documenter inner(prefix_ + std::string(key) + ".N.", out_);
    list.blank(inner);
    return *this;
  }

 private:
  Fields& line(std::string_view key, std::string_view type, std::string_view doc) {
    out_ += fmt::format("  {}{}\n      {}\n      {}\n", prefix_, key, doc, type);
    return *this;
  }
  Fields& heading(std::string_view key, std::string_view type, std::string_view doc) {
    out_ += fmt::format("{}{}{} ({}): {}\n", out_.empty() ? "" : "\n", prefix_, key, type, doc);
    return *this;
  }

  const std::string prefix_;
  std::string& out_;
};

}  // namespace

std::string document_fields(const Fields::Declare& declare, std::string_view prefix) {
  std::string out;
  Documenter documenter(prefix.empty() ? "" : std::string(prefix) + ".", out);
  declare(documenter);
  return out;
}

}  // namespace zpp
