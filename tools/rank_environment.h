// How a process learns its place in a job from whoever started it. The environment is read here and
// nowhere else.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace zpp {

/// The place of a process in a job.
struct RankEnvironment {
  int rank = 0, world = 1;
  int local_rank = 0, local_world = 1;  // among the ranks of this machine
  std::string master_address;           // where the job's store is; empty: not known
  int master_port = 0;                  // 0: not known
  /// Guards the store. Without a secret in ZPP_JOB_TOKEN it only keeps jobs apart.
  std::string token;
  bool launched = false;  // by zpp-train itself: the launcher keeps the store
  int attempt = 0;        // how often the launcher has started the job again
  int64_t threads = 0;    // of the kernels, if the launcher has decided it
  bool show_progress = false;
  std::string source;  // "Slurm", for messages
};

/// Value of an environment variable, absent if it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

/// This process's own.
Environment process_environment();

/// The place that zpp-train as a launcher, torchrun (and whatever sets RANK and WORLD_SIZE), Slurm or
/// Open MPI gave to this process; absent if none of them did or the job is one process.
/// Errors:  kInvalidArgument naming a variable whose value makes no sense
std::optional<RankEnvironment> find_place(const Environment& environment);

/// "gpu7" of "gpu[7,9-12],login1", a list of hosts as Slurm writes it.
std::string first_host(const std::string& nodelist);

}  // namespace zpp
