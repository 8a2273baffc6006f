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
  int rank = 0;  // whose view of the directory this is
  std::filesystem::path metrics_file() const { return dir / "metrics.jsonl"; }
  std::filesystem::path log_file() const;
  /// The last collectives of a rank that failed.
  std::filesystem::path flight_file() const;
  std::filesystem::path sample_file() const { return dir / "sample.txt"; }
  /// What the metrics of an earlier run in the same directory are called now; empty if there were
  /// none.
  std::string kept_metrics;
  /// Keeps other processes out of the directory.
  std::shared_ptr<FileLock> lock;
};

/// For rank 0, which writes everything but the others' logs: makes the directory and writes the resolved configuration with the build's version. Metrics of
/// an earlier run are kept as metrics-N.jsonl, N counting up.
/// Errors:  kInvalidArgument if something else has the directory's name or another run is using it;
///          kIo
RunDirectory prepare_run_directory(const TrainConfig& config);

/// For the other ranks, after rank 0 has prepared the directory: it may be on a disk of their own.
/// Errors:  kIo
RunDirectory join_run_directory(const TrainConfig& config, int rank);

}  // namespace zpp
