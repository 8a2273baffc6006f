// What this build is: shown by --version and written beside the results of a run.
#pragma once

#include <string>

namespace zpp {

struct Version {
  std::string semver;        // "0.1.0"
  std::string git_revision;  // "1f0c9d2e4b5a", "1f0c9d2e4b5a-dirty", or "unknown" without git
  std::string devices;       // compiled in, "cpu"
};

Version version();

/// "zpp 0.1.0 (git 1f0c9d2e4b5a, devices: cpu)"
std::string version_text();

}  // namespace zpp
