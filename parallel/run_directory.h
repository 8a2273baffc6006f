// Where a run leaves what it made: config.json, metrics.jsonl, log/, sample.txt.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "core/files.h"
#include "parallel/train_config.h"

namespace zpp {

struct RunDirectory {
  std::filesystem::path dir;
  std::filesystem::path metrics_file() const { return dir / "metrics.jsonl"; }
  std::filesystem::path log_file() const { return dir / "log" / "rank-0.log"; }
  std::filesystem::path sample_file() const { return dir / "sample.txt"; }
  /// What the metrics of an earlier run in the same directory are called now; empty if there were
  /// none.
  std::string kept_metrics;
  /// Keeps other processes out of the directory.
  std::shared_ptr<FileLock> lock;
};

/// Makes the directory and writes the resolved configuration with the build's version. Metrics of
/// an earlier run are kept as metrics-N.jsonl, N counting up.
/// Errors:  kInvalidArgument if something else has the directory's name or another run is using it;
///          kIo
RunDirectory prepare_run_directory(const TrainConfig& config);

}  // namespace zpp
