#include "core/version.h"

#include <fmt/format.h>

#include "core/git_revision.h"

namespace zpp {

Version version() {
  Version version;
  version.semver = "0.1.0";
  version.git_revision = kGitRevision;
  version.devices = "cpu";
  return version;
}

std::string version_text() {
  const Version v = version();
  return fmt::format("zpp {} (git {}, devices: {})", v.semver, v.git_revision, v.devices);
}

}  // namespace zpp
