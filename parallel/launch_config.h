// The `launch` section: how many processes train, where they run and how they find each other.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/config.h"
#include "core/stream.h"

namespace zpp {

/// The `launch` section.
struct LaunchSection {
  int64_t ranks_per_node = 1;
  int64_t nodes = 1;
  std::vector<std::string> hosts;
  std::string levels;
  int64_t max_restarts = 0;
  double timeout_s = 600;
  bool pin = true;
  std::string master_address;
  int64_t master_port = 0;
  std::string rendezvous_dir;
  std::vector<std::string> ssh = {"ssh",           "-T", "-o",
                                  "BatchMode=yes", "-o", "ServerAliveInterval=5"};
  std::string interfaces;
  std::string transports = "all";
  bool measure_links = false;

  void fields(Fields& f);

  Millis timeout() const { return Millis(static_cast<int64_t>(timeout_s * 1e3)); }
  /// Ranks that the section alone asks for: on this machine, or on all hosts.
  int64_t world() const;
};

/// What is wrong between the fields of the section.
void check_launch(const LaunchSection& launch, Problems& problems);

/// Sizes of the nested groups of `world` ranks, innermost first, as Topology::nested takes them;
/// empty if nodes are to be the hosts that the ranks find themselves on.
/// Errors: kInvalidArgument if `world` is not what launch.levels or launch.nodes can be
std::vector<int> nested_sizes(const LaunchSection& launch, int64_t world);

}  // namespace zpp
