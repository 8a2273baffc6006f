#include "parallel/run_directory.h"

#include <fmt/format.h>

#include <system_error>

#include "core/files.h"
#include "core/version.h"

namespace zpp {

namespace fs = std::filesystem;

namespace {

RunDirectory make_directory(const TrainConfig& config, int rank) {
  RunDirectory run{.dir = config.run.dir, .rank = rank, .kept_metrics = {}, .lock = {}};
  std::error_code error;
  if (fs::exists(run.dir, error) && !fs::is_directory(run.dir, error)) {
    throw Error(Code::kInvalidArgument,
                fmt::format("run.dir: {} exists and is no directory", run.dir.string()));
  }
  fs::create_directories(run.log_file().parent_path(), error);
  if (error) {
    throw Error(Code::kIo,
                fmt::format("run.dir: {} cannot be made: {}", run.dir.string(), error.message()));
  }
  return run;
}

}  // namespace

fs::path RunDirectory::log_file() const { return dir / "log" / fmt::format("rank-{}.log", rank); }

fs::path RunDirectory::flight_file() const {
  return dir / "log" / fmt::format("flight-{}.jsonl", rank);
}

RunDirectory join_run_directory(const TrainConfig& config, int rank) {
  return make_directory(config, rank);
}

RunDirectory prepare_run_directory(const TrainConfig& config) {
  RunDirectory run = make_directory(config, 0);
  std::error_code error;
  run.lock = std::make_shared<FileLock>(run.dir / ".lock");
  if (fs::exists(run.metrics_file())) {
    int64_t n = 1;
    while (fs::exists(run.dir / fmt::format("metrics-{}.jsonl", n))) ++n;
    run.kept_metrics = fmt::format("metrics-{}.jsonl", n);
    fs::rename(run.metrics_file(), run.dir / run.kept_metrics, error);
    if (error) {
      throw Error(Code::kIo,
                  fmt::format("{} cannot be renamed to {}: {}", run.metrics_file().string(),
                              run.kept_metrics, error.message()));
    }
  }
  TrainConfig resolved = config;
  resolved.build = {version().semver, version().git_revision};
  write_file_atomic(run.dir / "config.json", dump_config(resolved));
  return run;
}

}  // namespace zpp
