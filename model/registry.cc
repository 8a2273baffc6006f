#include "model/registry.h"

#include <map>

#include "core/error.h"

namespace zpp {
namespace {

// A function's static, so that registration from other files' initialisers finds it made.
std::map<std::string, ModelEntry, std::less<>>& entries() {
  static std::map<std::string, ModelEntry, std::less<>> map;
  return map;
}

}  // namespace

bool register_model(ModelEntry entry) {
  std::string name = entry.name;
  if (!entries().emplace(name, std::move(entry)).second) {
    throw Error(Code::kInvalidArgument, "model \"" + name + "\" is registered twice");
  }
  return true;
}

const ModelEntry* find_model(std::string_view name) {
  const auto it = entries().find(name);
  return it == entries().end() ? nullptr : &it->second;
}

std::vector<const ModelEntry*> registered_models() {
  std::vector<const ModelEntry*> all;
  for (const auto& [name, entry] : entries()) all.push_back(&entry);
  return all;
}

}  // namespace zpp
