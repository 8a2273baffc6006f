// zpp-train as a launcher: starts the ranks of a job, on this machine or on several, and ends with
// what became of them.
//
// A launcher keeps the job's store (or, on further machines, is told where it is), starts one process
// per rank of its machine with RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT in the
// environment, and watches. With launch.hosts it starts one such launcher per machine through ssh
// instead, and speaks to it through its standard input: a line with the job's token and the attempt,
// then signals; at the end of the input the machine's ranks are killed.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "core/log.h"
#include "parallel/launch_config.h"
#include "tools/exit_code.h"

namespace zpp {

struct LaunchRequest {
  LaunchSection config;
  std::string program;                 // what a rank runs, by absolute path
  std::vector<std::string> arguments;  // its argv, the program's name first
  int64_t threads = 0;         // of the kernels of each rank; 0: the cores divided by the ranks
  std::string log_dir;         // where rank N keeps its rank-N.log; empty: nowhere
  bool show_progress = false;  // rank 0 may draw a progress line

  // One launcher per machine, each told its place: --nnodes, --node-rank, --master.
  int nodes = 1, node = 0;
  std::string master_address;  // empty: a job of this machine only
  int master_port = 0;
  std::string token;  // empty: a new secret one

  /// Started through ssh by another launcher: the first line of this file (token and attempt) has
  /// been read, what follows are its signals. -1: started by a person.
  int control_fd = -1;
  int attempt = 0;

  // How soon after a failure the others are told to end, and then killed.
  std::chrono::milliseconds settle{2500}, grace{4000};
};

/// Ranks of the whole job.
int launch_world(const LaunchRequest& request);

/// Runs the job, starting it again after failures as often as the configuration allows. Returns when
/// none of its processes is left.
/// Errors:  kIo if the store's port is taken or a process cannot be started; kInvalidArgument
ExitCode launch(const LaunchRequest& request, Log& log);

/// Token and attempt from the first line of a launcher's standard input.
struct ControlLine {
  std::string token;
  int attempt = 0;
};
/// Errors:  kInvalidArgument if there is no such line
ControlLine read_control_line(int fd);

/// `text` as one word of a shell command.
std::string shell_quote(const std::string& text);

}  // namespace zpp
