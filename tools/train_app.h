// zpp-train without its command line: one call per thing it can do.
#pragma once

#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include "parallel/trainer.h"
#include "tools/exit_code.h"

namespace zpp {

struct TrainArguments {
  std::string config_file;
  std::vector<std::string> overrides;  // "path.key=value"
};

/// Reads and checks the configuration.
/// Errors:  kNotFound, kInvalidArgument
TrainConfig load_train_config(const TrainArguments& arguments);

/// Trains. What people want to keep (the sample, where everything lies) goes to `out`, the log to
/// stderr and the run directory.
/// Errors: as train() and open_train_data()
ExitCode run_training(const TrainArguments& arguments, const TrainerOptions& options,
                      std::ostream& out);

/// Prints the plan of the run. Data files may be missing.
/// Errors: kInvalidArgument
void print_plan(const TrainArguments& arguments, std::ostream& out);

}  // namespace zpp
