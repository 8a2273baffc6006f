// zpp-train without its command line: one call per thing it can do.
#pragma once

#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include "parallel/advice.h"
#include "parallel/trainer.h"
#include "tools/exit_code.h"
#include "tools/rank_environment.h"

namespace zpp {

struct TrainArguments {
  std::string config_file;
  std::vector<std::string> overrides;  // "path.key=value"
};

/// Reads and checks the configuration.
/// Errors:  kNotFound, kInvalidArgument
TrainConfig load_train_config(const TrainArguments& arguments);

/// Trains in one process. What people want to keep (the sample, where everything lies) goes to `out`,
/// the log to stderr and the run directory.
/// Errors:  as train() and open_train_data()
ExitCode run_training(const TrainArguments& arguments, const TrainerOptions& options,
                      std::ostream& out);

/// Trains as one rank of a job. Only rank 0 writes to `out` and to the run directory, but for the
/// log, which each has.
/// Errors:  as run_training(), meet(), connect_tcp_store() and make_ucx_transport()
ExitCode run_rank(const TrainArguments& arguments, const RankEnvironment& place,
                  const TrainerOptions& options, std::ostream& out);

/// A machine's place in a job that is launched once per machine.
struct NodePlace {
  int nodes = 1, node = 0;
  std::string master;  // "host:port"; empty: launched on one machine
  bool controlled = false;
};

/// Launches what `config`, read from `arguments`, describes: on this machine, on launch.hosts, or this
/// machine's part of a job of several. `name` is the program's own, argv[0].
/// Errors:  as launch()
ExitCode run_launcher(const TrainArguments& arguments, const TrainConfig& config,
                      const NodePlace& place, const std::string& name, bool show_progress);

/// Prints the plan of the run for `world` ranks; 0: as many as the configuration launches. Data files
/// may be missing.
/// Errors: kInvalidArgument
void print_plan(const TrainArguments& arguments, int64_t world, std::ostream& out);

/// Prints what every preset of the `zero` section would need and do on `cluster`.
/// Errors: kInvalidArgument
void print_advice(const TrainArguments& arguments, const Cluster& cluster, std::ostream& out);

}  // namespace zpp
