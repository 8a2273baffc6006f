#include "comm/topology.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "core/error.h"

namespace zpp {
namespace {

/// Runs of equal neighbours: "node1 x 4, node2 x 3".
struct Run {
  std::string host;
  int ranks = 0;
};

std::vector<Run> runs_of(std::span<const std::string> hosts) {
  std::vector<Run> runs;
  for (const std::string& host : hosts) {
    if (runs.empty() || runs.back().host != host) runs.push_back({host, 0});
    ++runs.back().ranks;
  }
  return runs;
}

std::string list(const std::vector<Run>& runs) {
  std::string text;
  for (const Run& run : runs) {
    text += fmt::format("{}{} x {}", text.empty() ? "" : ", ", run.host, run.ranks);
  }
  return text;
}

}  // namespace

Topology Topology::nested(std::span<const int> sizes) {
  const auto refuse = [&](const std::string& why) {
    throw Error(Code::kInvalidArgument,
                fmt::format("topology: group sizes are {} but {}", sizes, why));
  };
  if (sizes.empty()) refuse("there must be at least one, the number of ranks");
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < 1) refuse("each must be at least 1");
    if (i > 0 && sizes[i] % sizes[i - 1] != 0) {
      refuse(fmt::format("{} is no multiple of {}", sizes[i], sizes[i - 1]));
    }
  }
  return Topology({sizes.begin(), sizes.end()});
}

Topology Topology::from_hosts(std::span<const std::string> hosts) {
  if (hosts.empty()) throw Error(Code::kInvalidArgument, "topology: there are no ranks");
  const std::vector<Run> runs = runs_of(hosts);
  for (size_t i = 0; i < runs.size(); ++i) {
    const auto again = std::find_if(runs.begin() + static_cast<std::ptrdiff_t>(i) + 1, runs.end(),
                                    [&](const Run& run) { return run.host == runs[i].host; });
    if (again != runs.end()) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("topology: the ranks of host {} are not neighbours; in rank order "
                              "the hosts are {}",
                              runs[i].host, list(runs)));
    }
    if (runs[i].ranks != runs[0].ranks) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("topology: all hosts should have equally many ranks but they are {}",
                              list(runs)));
    }
  }
  if (runs.size() == 1) return Topology({runs[0].ranks});
  return Topology({runs[0].ranks, static_cast<int>(hosts.size())});
}

int Topology::group_size(int level) const {
  if (level < 0 || level > levels()) {
    throw Error(Code::kInvalidArgument,
                fmt::format("topology: level {} of 0 to {}", level, levels()));
  }
  return level == 0 ? 1 : sizes_[static_cast<size_t>(level - 1)];
}

std::vector<int> Topology::group(int level, int rank) const {
  const int size = group_size(level);
  if (rank < 0 || rank >= world()) {
    throw Error(Code::kInvalidArgument, fmt::format("topology: rank {} of {}", rank, world()));
  }
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), rank / size * size);
  return ranks;
}

LinkClass Topology::link(int a, int b) const {
  LinkClass level = 0;
  while (level < levels() && a / group_size(level) != b / group_size(level)) ++level;
  return level;
}

std::string Topology::level_name(int level) const {
  group_size(level);  // checks
  if (level == 0) return "self";
  if (level == levels()) return "world";
  return level == 1 ? "node" : fmt::format("level{}", level);
}

int Topology::level_of(std::string_view name) const {
  if (name == "node") return 1;  // also when the world is one node
  std::string names;
  for (int level = 0; level <= levels(); ++level) {
    if (name == level_name(level)) return level;
    names += fmt::format("{}{}", level == 0 ? "" : ", ", level_name(level));
  }
  throw Error(Code::kInvalidArgument,
              fmt::format("topology: there is no level \"{}\"; there are {}", name, names));
}

}  // namespace zpp
