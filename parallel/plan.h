// What a configuration would need and do, found without allocating or computing: the table of
// `zpp-train --dry-run` and of zpp-plan.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/types.h"
#include "parallel/train_config.h"

namespace zpp {

/// What a plan cannot know from the configuration alone.
struct PlanData {
  int64_t windows = 0;      // samples in one pass over the training data
  int64_t train_bytes = 0;  // size of the training files
  int64_t val_bytes = 0;    // of the part of the validation files that evaluations read
};

struct Plan {
  struct ParameterRow {
    std::string name;
    Shape shape;
  };
  /// Units that are alike, such as all blocks of a GPT.
  struct UnitRow {
    std::string first, last;  // names
    int64_t copies = 1;
    int64_t numel = 0;  // of one copy
    std::vector<ParameterRow> parameters;
  };
  std::vector<UnitRow> units;
  int64_t parameters = 0;

  int64_t world = 1;
  std::string groups;  // "384 ranks in groups of 8"; empty for one process

  // Bytes of one rank. The first seven kinds add up to `pool`, which is what the pool of a real run
  // holds at its highest, to the byte.
  int64_t weights = 0;
  int64_t replica = 0;  // of the weights, in the node
  int64_t master = 0;
  int64_t moments = 0;
  int64_t gradients = 0;
  int64_t passing = 0;  // gathered weights and gradients on their way, of a few units at a time
  int64_t working = 0;  // activations, scratch, batches, and what the pool loses by rounding
  int64_t pool = 0;
  int64_t mapped = 0;   // pages of data files that the run will touch
  int64_t process = 0;  // program, libraries, host-side bookkeeping: a measured constant
  int64_t total() const { return pool + mapped + process; }
  std::optional<int64_t> available;  // of this machine, now

  int64_t steps = 0;
  int64_t tokens_per_step = 0;
  std::optional<double> steps_per_epoch;  // absent when the data is not there
  double flops_per_token = 0;
  double total_flops() const {
    return flops_per_token * static_cast<double>(tokens_per_step) * static_cast<double>(steps);
  }
};

/// Walks through the parts of the run that `config` describes in a runtime that only counts memory,
/// as one of `world` ranks, none of which is started.
/// Errors: kInvalidArgument if the configuration does not fit that many ranks
Plan make_plan(const TrainConfig& config, const std::optional<PlanData>& data, int64_t world = 1);

/// The table. Ends with a warning if the machine has less memory than the total.
std::string plan_text(const TrainConfig& config, const Plan& plan);

/// Memory that this process could still get: the system's, or less where a container has a limit;
/// absent where the system does not say.
std::optional<int64_t> available_memory();

}  // namespace zpp
