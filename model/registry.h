// The models that a binary knows, by name. The project's only registry: models register before
// main() through ZPP_REGISTER_MODEL, in a library that the `zpp_model` rule links whole.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/config.h"
#include "model/model.h"

namespace zpp {

struct ModelEntry {
  /// What data and engine need to know of a configured model.
  struct Facts {
    int64_t vocab = 0;    // token ids are below this
    int64_t context = 0;  // longest row of tokens
  };

  std::string name;
  /// Adds everything wrong with the `model` section (JSON text) to `problems`; facts are meaningful
  /// when nothing was added.
  std::function<Facts(std::string_view json, const ParseOptions&, Problems&)> check;
  std::function<std::unique_ptr<Model>(const Scope&, std::string_view json)> create;
  /// The section with all defaults filled in, without "name".
  std::function<std::string(std::string_view json)> resolve;
  /// Reference of the section's keys.
  std::function<std::string(std::string_view prefix)> document;
};

/// Errors: kInvalidArgument on a duplicate name. Returns true, for use in an initialiser.
bool register_model(ModelEntry entry);
/// Nullptr when no such model is linked in.
const ModelEntry* find_model(std::string_view name);
/// Sorted by name.
std::vector<const ModelEntry*> registered_models();

/// Config is a struct with `int64_t vocab, context` and `void fields(Fields&)`; it may have `void
/// check(std::string_view prefix, Problems&) const` for what spans several fields.
template <class ModelType, class Config>
ModelEntry model_entry(std::string_view name) {
  // "name" chooses the entry; the rest is the model's.
  const auto parse = [](std::string_view json, ParseOptions options, Problems& problems) {
    options.ignored.push_back("name");
    const size_t before = problems.lines().size();
    Config config = parse_config<Config>(json, options, problems);
    if constexpr (requires { config.check(std::string_view{}, problems); }) {
      if (problems.lines().size() == before) config.check(options.prefix, problems);
    }
    return config;
  };
  const auto parse_checked = [parse](std::string_view json) {
    Problems problems;
    Config config = parse(json, {.source = "model", .prefix = "model"}, problems);
    problems.throw_if_any("model");
    return config;
  };
  return {.name = std::string(name),
          .check =
              [parse](std::string_view json, const ParseOptions& options, Problems& problems) {
                const Config config = parse(json, options, problems);
                return ModelEntry::Facts{config.vocab, config.context};
              },
          .create = [parse_checked](const Scope& scope,
                                    std::string_view json) -> std::unique_ptr<Model> {
            return std::make_unique<ModelType>(scope, parse_checked(json));
          },
          .resolve =
              [parse_checked](std::string_view json) { return dump_config(parse_checked(json)); },
          .document = [](std::string_view prefix) { return document_config<Config>(prefix); }};
}

}  // namespace zpp

#define ZPP_REGISTER_MODEL(name, ModelType, ConfigType) \
  static const bool zpp_model_registered_##ModelType =  \
      ::zpp::register_model(::zpp::model_entry<ModelType, ConfigType>(name))
