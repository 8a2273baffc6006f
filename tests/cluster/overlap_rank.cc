// The rank of a node of an emulated cluster that trains a model whose kernels sleep. Prints what a
// step took: "step 0.5 exposed 0.01 comm 0.3 bytes 1000000", times in seconds.
//
// Usage: overlap_rank DIRECTORY overlapped|serial     with NODE_RANK and NNODES set
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "parallel/rank_context.h"
#include "tests/comm/process_ranks.h"
#include "tests/parallel/sleeping_model.h"

namespace zpp {
namespace {

constexpr Millis kDeadline{60000};
constexpr int kSteps = 3;

void train(const char* directory, bool overlap) {
  const int rank = std::atoi(std::getenv("NODE_RANK")), world = std::atoi(std::getenv("NNODES"));
  const auto store = make_file_store(directory, "test");
  const Rendezvous place = meet(*store, rank, world, {}, kDeadline);
  RankContextOptions options{.topology = place.topology, .connect = [&](int plane) {
                               return make_ucx_transport(*store, place, plane, {});
                             }};
  options.deadline = kDeadline;
  RankContext context(options);
  Runtime runtime({.device = {}, .threads = 1});
  // Half a MiB in a message: longer than what a card may send at once.
  const SleepingShape shape{.width = 512,
                            .layers = 12,
                            .forward = std::chrono::milliseconds(20),
                            .backward = std::chrono::milliseconds(40)};
  const SleepingTimes times = time_sleeping(runtime, context.mesh(), shape, overlap, 1, kSteps);
  const std::string line = fmt::format("step {:.4f} exposed {:.4f} comm {:.4f} bytes {:.0f}",
                                       times.step_s, times.exposed_s, times.comm_s, times.bytes);
  std::puts(line.c_str());
}

}  // namespace
}  // namespace zpp

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  try {
    zpp::train(argv[1], std::string_view(argv[2]) == "overlapped");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
