#include "core/available_cores.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <thread>

namespace zpp {

namespace {

namespace fs = std::filesystem;

/// Quota over period in one directory. Version 2 writes "200000 100000" or "max 100000" into one
/// file, version 1 uses two files and -1.
std::optional<double> quota_of(const fs::path& dir) {
  double quota = 0;
  double period = 0;
  if (std::ifstream v2(dir / "cpu.max"); v2) {
    v2 >> quota >> period;
  } else {
    std::ifstream(dir / "cpu.cfs_quota_us") >> quota;
    std::ifstream(dir / "cpu.cfs_period_us") >> period;
  }
  if (quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

bool lists_cpu(const std::string& controllers) {
  std::istringstream names(controllers);
  for (std::string name; std::getline(names, name, ',');) {
    if (name == "cpu") return true;
  }
  return false;
}

int cores_by_affinity() {
  // The kernel refuses a mask that is smaller than its own, so the size is found by trying.
  for (int cpus = 1024; cpus <= 1 << 20; cpus *= 2) {
    cpu_set_t* mask = CPU_ALLOC(static_cast<size_t>(cpus));
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(cpus));
    const bool ok = mask != nullptr && sched_getaffinity(0, bytes, mask) == 0;
    const int count = ok ? CPU_COUNT_S(bytes, mask) : 0;
    CPU_FREE(mask);
    if (count > 0) return count;
  }
  return static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace

int cores_by_quota(const fs::path& membership, const fs::path& mount) {
  std::optional<double> least;
  std::ifstream lines(membership);
  for (std::string line; std::getline(lines, line);) {
    // "4:cpu,cpuacct:/group" (version 1) or "0::/group" (version 2)
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (!controllers.empty() && !lists_cpu(controllers)) continue;
    const fs::path root = mount / controllers;
    // Inside a container the group's own path may not exist below the mount; its root then is ours.
    fs::path dir = fs::path(line.substr(second + 1)).relative_path();
    while (true) {
      if (const auto quota = quota_of(root / dir)) least = std::min(least.value_or(*quota), *quota);
      if (dir.empty()) break;
      dir = dir.parent_path();
    }
  }
  // Rounded down: a thread too many is stopped by the kernel in the middle of a loop, and all wait
  // for it.
  return least ? std::max(1, static_cast<int>(*least)) : 0;
}

int available_cores() {
  const int cores = std::max(1, cores_by_affinity());
  const int quota = cores_by_quota("/proc/self/cgroup", "/sys/fs/cgroup");
  return quota > 0 ? std::min(cores, quota) : cores;
}

}  // namespace zpp
