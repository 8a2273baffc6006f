// The configuration of a training run: its sections, and everything that can be wrong between them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/config.h"
#include "core/data/data_config.h"
#include "core/types.h"
#include "model/registry.h"
#include "parallel/launch_config.h"
#include "parallel/optimizer.h"
#include "parallel/schedule.h"
#include "parallel/zero_config.h"

namespace zpp {

/// The `run` section.
struct RunSection {
  std::string name = "run";
  std::string dir;  // after parse_train_config never empty
  int64_t seed = 1;
  std::string device = "cpu";
  int64_t threads = 0;

  void fields(Fields& f);
};

/// The `train` section.
struct TrainSection {
  int64_t steps = 1000;
  int64_t global_batch = 8;
  std::optional<int64_t> micro_batch;
  double grad_clip = 1.0;
  int64_t eval_every = 0;
  int64_t eval_batches = 16;
  std::string recompute = "none";
  int64_t max_bad_steps = 5;
  std::vector<std::string> frozen;

  void fields(Fields& f);
};

/// The `precision` section.
struct PrecisionSection {
  std::string compute = "f32";
  std::optional<double> loss_scale;

  void fields(Fields& f);
};

/// The `log` section.
struct LogSection {
  int64_t every = 10;

  void fields(Fields& f);
};

/// The `sample` section: the text that a run ends with.
struct SampleSection {
  int64_t tokens = 256;
  double temperature = 0.8;
  int64_t top_k = 40;
  std::string prompt = "\n";

  void fields(Fields& f);
};

/// Which build wrote a run directory's config.json. Ignored when a config is read.
struct BuildSection {
  std::string version, git_revision;

  void fields(Fields& f);
};

struct TrainConfig {
  RunSection run;
  std::string model;  // JSON; after parse_train_config with all defaults filled in
  DataConfig data;
  TrainSection train;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  PrecisionSection precision;
  ZeroConfig zero;
  LogSection log;
  SampleSection sample;
  LaunchSection launch;
  BuildSection build;

  /// Of the model, found by parse_train_config.
  const ModelEntry* model_entry = nullptr;
  ModelEntry::Facts facts;

  void fields(Fields& f);

  DType compute() const;
  /// Sequences that each of `world` ranks computes at once, and how often in a step.
  int64_t micro_batch(int64_t world = 1) const {
    return train.micro_batch.value_or(std::max<int64_t>(train.global_batch / world, 1));
  }
  int64_t micro_batches(int64_t world = 1) const {
    return train.global_batch / (micro_batch(world) * world);
  }
  int64_t tokens_per_step() const { return train.global_batch * facts.context; }
};

/// Reads `text`, changed by `overrides` ("path.key=value"), fills in defaults and checks each value
/// and what spans several sections. Files are not looked at: see open_train_data().
/// Errors: kInvalidArgument with all problems under a heading that names `source`
TrainConfig parse_train_config(std::string_view text, const std::string& source,
                               const std::vector<std::string>& overrides = {});

/// Refuses a global batch that cannot be cut evenly between `world` ranks.
/// Errors: kInvalidArgument, with what would fit
void check_world(const TrainConfig& config, int64_t world);

/// Reference of all keys, with those of every registered model.
std::string document_train_config();

}  // namespace zpp
