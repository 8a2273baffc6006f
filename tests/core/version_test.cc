#include "core/version.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace zpp {
namespace {

TEST(Version, SaysVersionRevisionAndDevices) {
  const Version v = version();
  EXPECT_EQ(std::count(v.semver.begin(), v.semver.end(), '.'), 2) << v.semver;
  const std::string hash = v.git_revision.substr(0, v.git_revision.find("-dirty"));
  EXPECT_TRUE(hash == "unknown" || hash.find_first_not_of("0123456789abcdef") == std::string::npos)
      << v.git_revision;
  EXPECT_FALSE(hash.empty());
  EXPECT_EQ(v.devices.find("cpu"), 0u);
  EXPECT_EQ(version_text(),
            "zpp " + v.semver + " (git " + v.git_revision + ", devices: " + v.devices + ")");
}

}  // namespace
}  // namespace zpp
