// The loop of a run: steps, evaluations, reports, and a clean end whatever ends it.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "comm/mesh.h"
#include "core/log.h"
#include "parallel/run_directory.h"
#include "parallel/train_config.h"
#include "parallel/train_data.h"

namespace zpp {

struct TrainerOptions {
  /// Asked between steps; true ends the run after the step.
  std::function<bool()> stop_requested = [] { return false; };
  /// Shows a line that the next one replaces; an empty line removes it. Absent: no progress shown.
  std::function<void(std::string_view)> show_progress = {};
};

enum class TrainOutcome {
  kDone,
  kStopped,  // asked to
  kFailed,   // too many steps in a row that were not finite
};

struct TrainResult {
  TrainOutcome outcome = TrainOutcome::kDone;
  int64_t steps = 0;
  double val_loss = 0;  // of the last evaluation, 0 without any
  std::string sample;   // empty without one
};

/// Trains as `config` says, on `data`, into `run`. With a mesh as one of its ranks: all of them call
/// it, with the same configuration, and end together; only rank 0 writes metrics and sample. An error
/// of one ends the others.
/// Errors: those of the data, the model and the machine's memory
TrainResult train(const TrainConfig& config, const TrainData& data, const RunDirectory& run,
                  Log& log, const TrainerOptions& options, const Mesh* mesh = nullptr);

}  // namespace zpp
