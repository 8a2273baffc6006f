// The data of a run, opened and checked against the rest of the configuration.
#pragma once

#include "parallel/plan.h"
#include "parallel/session.h"
#include "parallel/train_config.h"

namespace zpp {

struct TrainData {
  BatchSource train;        // by global sample number, endless
  BatchSource val;          // by window; empty without validation data
  int64_t val_windows = 0;  // how many there are
  PlanData facts;
};

/// Errors: kNotFound if a file is missing; kInvalidArgument for files that are malformed, too short
///         for one window, or made for a larger vocabulary than the model's
TrainData open_train_data(const TrainConfig& config);

/// Random token ids in place of files, for measuring speed.
TrainData synthetic_data(const TrainConfig& config);

}  // namespace zpp
