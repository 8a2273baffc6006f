#include "parallel/launch_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "core/error.h"

namespace zpp {
namespace {

constexpr int64_t kMostRanks = 1 << 14;  // as many as a message's tag can name

/// The factors of "2x2x4", outermost first; empty if it is not of that form.
std::vector<int64_t> factors(const std::string& levels) {
  std::vector<int64_t> all;
  const char* at = levels.data();
  const char* const end = at + levels.size();
  while (true) {
    int64_t factor = 0;
    const auto [rest, error] = std::from_chars(at, end, factor);
    if (error != std::errc() || factor < 1 || factor > kMostRanks) return {};
    all.push_back(factor);
    if (rest == end) return all;
    if (*rest != 'x') return {};
    at = rest + 1;
  }
}

}  // namespace

void LaunchSection::fields(Fields& f) {
  f("ranks_per_node", ranks_per_node, "processes on each machine, or on each pretended node", 1,
    kMostRanks)("nodes", nodes,
                "pretend that the ranks of one machine are on that many nodes, for trying out", 1,
                kMostRanks)("hosts", hosts, "machines to start ranks on, through launch.ssh")(
      "levels", levels,
      "nesting of the ranks, outermost first, as in \"2x2x4\"; default: the nodes they are on")(
      "max_restarts", max_restarts, "how often a job that failed is started again", 0, 1 << 20)(
      "timeout_s", timeout_s, "how long a rank waits for others before it gives up", 0.1, 1e7)(
      "pin", pin, "divide the cores of a machine between its ranks")(
      "master_address", master_address,
      "how other machines reach this one (or the first); default: its host name")(
      "master_port", master_port,
      "port to meet at; 0: any free one, or one that follows from the job", 0,
      65535)("rendezvous_dir", rendezvous_dir,
             "meet through files in this directory, which all machines share, instead of a port")(
      "ssh", ssh, "command that host and a shell command are appended to")(
      "interfaces", interfaces,
      "network interfaces of the ranks' messages, as in \"eth0,mlx5_0:1\"; default: all")(
      "transports", transports, "\"all\" or UCX's transports, as in \"sm,tcp\"")(
      "measure_links", measure_links,
      "choose algorithms by measured speed of the links; sums may then round differently in each "
      "run");
}

int64_t LaunchSection::world() const {
  return ranks_per_node * (hosts.empty() ? nodes : static_cast<int64_t>(hosts.size()));
}

void check_launch(const LaunchSection& launch, Problems& problems) {
  if (!launch.hosts.empty() && launch.nodes > 1) {
    problems.add("launch.nodes",
                 "pretends nodes on one machine, but launch.hosts names real ones: leave one out");
  }
  if (launch.world() > kMostRanks) {
    problems.add(
        "launch.ranks_per_node",
        fmt::format("{} ranks in all, but at most {} are possible", launch.world(), kMostRanks));
  }
  if (!launch.levels.empty() && factors(launch.levels).empty()) {
    problems.add("launch.levels", fmt::format("expected sizes like \"2x4\" or \"2x2x2\", found "
                                              "\"{}\"",
                                              launch.levels));
  }
  for (const std::string& host : launch.hosts) {
    // What starts with '-' would be an option of ssh.
    if (host.empty() || host.starts_with('-')) {
      problems.add("launch.hosts", fmt::format("expected names of machines, found \"{}\"", host));
    }
  }
  if (launch.ssh.empty()) problems.add("launch.ssh", "expected a command");
}

std::vector<int> nested_sizes(const LaunchSection& launch, int64_t world) {
  std::vector<int> sizes;
  if (!launch.levels.empty()) {
    int64_t size = 1;
    std::vector<int64_t> all = factors(launch.levels);
    for (auto factor = all.rbegin(); factor != all.rend(); ++factor) {
      // Enough to tell that it is too much, and no overflow.
      size = std::min(size * *factor, kMostRanks * kMostRanks);
      sizes.push_back(static_cast<int>(std::min<int64_t>(size, kMostRanks + 1)));
    }
    if (size != world) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("launch.levels: {} is for {} ranks, but there are {}", launch.levels,
                              size, world));
    }
    return sizes;
  }
  if (launch.nodes == 1) return {};
  if (world % launch.nodes != 0) {
    throw Error(Code::kInvalidArgument,
                fmt::format("launch.nodes: {} ranks cannot be {} nodes of equal size", world,
                            launch.nodes));
  }
  return {static_cast<int>(world / launch.nodes), static_cast<int>(world)};
}

}  // namespace zpp
