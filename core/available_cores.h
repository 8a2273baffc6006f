// How many processor cores this process may use.
#pragma once

#include <filesystem>

namespace zpp {

/// Cores this process may run on (affinity mask and container quota respected), at least 1.
int available_cores();

/// Whole cores that the CPU quota of a control group grants, version 1 or 2 and all its parents, or
/// 0 for no limit. `membership` is what Linux shows as /proc/self/cgroup, `mount` is where the
/// hierarchies are, /sys/fs/cgroup.
int cores_by_quota(const std::filesystem::path& membership, const std::filesystem::path& mount);

}  // namespace zpp
