// The ranks of one node of an emulated cluster: collectives over UCX, checked, and what the ledger
// says of them. Prints "rank 1 bytes 0 1000 2000" (by link class) for each rank.
//
// Usage: cluster_rank DIRECTORY RANKS_PER_NODE BYTES     with NODE_RANK and NNODES set
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "comm/host_communicator.h"
#include "core/runtime.h"
#include "tests/comm/process_ranks.h"

namespace zpp {
namespace {

using testing::require;

void gather_and_reduce(Communicator& world, Runtime& runtime, int64_t bytes) {
  const int64_t part = bytes / 4 / world.size(), whole = part * world.size();
  const Tensor all = runtime.tensor({whole}, DType::kF32);
  auto* const values = all.view().as<float>();
  const auto own = all.view().slice(0, world.rank() * part, (world.rank() + 1) * part);
  for (int64_t i = 0; i < part; ++i) {
    own.as<float>()[i] = static_cast<float>(world.rank() * 1000 + i % 997);
  }
  world.all_gather(own, all.view()).synchronize(Millis(60000));
  for (int64_t i = 0; i < whole; ++i) {
    require(values[i] == static_cast<float>(i / part * 1000 + i % part % 997), "what was gathered");
  }
  world.reduce_scatter(all.view(), own, ReduceOp::kSum).synchronize(Millis(60000));
  for (int64_t i = 0; i < part; ++i) {
    require(
        own.as<float>()[i] == static_cast<float>(world.size() * (world.rank() * 1000 + i % 997)),
        "what was summed");
  }
}

void run_rank(const char* directory, int rank, int world_size, int nodes, int64_t bytes) {
  testing::UcxRank self(directory, rank, world_size, {});
  require(self.place.topology.group_size(1) == world_size / nodes, "the hosts to be the nodes");
  Runtime::Options options;
  options.threads = 1;
  Runtime runtime(options);
  Ledger ledger(self.place.topology.levels());
  HostCommunicatorOptions host;
  host.deadline = Millis(60000);
  host.ledger = &ledger;
  const auto world =
      make_host_communicator(runtime.compute(), *self.transport, self.place.topology, host);
  gather_and_reduce(*world, runtime, bytes);
  std::string line = fmt::format("rank {} bytes", rank);
  for (const int64_t sent : ledger.sent_bytes()) line += fmt::format(" {}", sent);
  std::puts(line.c_str());
  std::fflush(stdout);
  world->barrier().synchronize(Millis(60000));
}

int run_node(const char* directory, int per_node, int64_t bytes) {
  const int node = std::atoi(std::getenv("NODE_RANK")), nodes = std::atoi(std::getenv("NNODES"));
  const testing::Outcomes outcomes = testing::run_processes(
      per_node,
      [&](int local) {
        run_rank(directory, node * per_node + local, nodes * per_node, nodes, bytes);
      },
      std::chrono::seconds(100));
  int code = 0;
  for (const std::string& outcome : outcomes) {
    if (outcome == "done") continue;
    std::fprintf(stderr, "node %d: %s\n", node, outcome.c_str());
    code = 1;
  }
  return code;
}

}  // namespace
}  // namespace zpp

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  return zpp::run_node(argv[1], std::atoi(argv[2]), std::atoll(argv[3]));
}
