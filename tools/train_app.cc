#include "tools/train_app.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>

#include "core/available_cores.h"
#include "core/files.h"
#include "parallel/plan.h"
#include "tools/launch.h"
#include "tools/train_rank.h"

namespace zpp {
namespace {

/// What is said at the end of a run, and its exit code.
ExitCode conclude(const TrainResult& result, const RunDirectory& run, std::ostream& out) {
  if (run.rank == 0) {
    if (!result.sample.empty()) out << "\nSample:\n" << result.sample << "\n\n";
    out << fmt::format("Everything lies in {}: config.json, metrics.jsonl, log/rank-0.log{}\n",
                       run.dir.string(), result.sample.empty() ? "" : ", sample.txt");
  }
  switch (result.outcome) {
    case TrainOutcome::kDone:
      return kExitDone;
    case TrainOutcome::kStopped:
      return kExitStopped;
    case TrainOutcome::kFailed:
      break;
  }
  return kExitFailed;
}

/// `rank` is null in a job of one process.
ExitCode train_in(const RunDirectory& run, const TrainConfig& config, const TrainData& data,
                  TrainRank* rank, const TrainerOptions& options, std::ostream& out) {
  // One rank is enough on the console, but for what goes wrong.
  const std::unique_ptr<Log> log =
      make_log(run.log_file(), run.rank == 0 ? LogLevel::kInfo : LogLevel::kWarning);
  try {
    Mesh* mesh = rank == nullptr ? nullptr : &rank->connect();
    return conclude(train(config, data, run, *log, options, mesh), run, out);
  } catch (const Error& error) {
    log->error(error.what());
    if (rank != nullptr) rank->fail(error, run, *log);
    return exit_code(error);
  } catch (const std::exception& error) {
    log->error(error.what());
    if (rank != nullptr) rank->fail(Error(Code::kInternal, error.what()), run, *log);
    return kExitFailed;
  }
}

void set_master(const NodePlace& place, LaunchRequest& request) {
  const auto refuse = [](const std::string& text) { throw Error(Code::kInvalidArgument, text); };
  if (place.node < 0 || place.node >= place.nodes) {
    refuse(
        fmt::format("--node-rank: expected a number from 0 to {}, which is --nnodes less one, "
                    "found {}",
                    place.nodes - 1, place.node));
  }
  if (place.master.empty() && place.nodes > 1 && request.config.rendezvous_dir.empty()) {
    refuse("--nnodes: --master HOST:PORT or launch.rendezvous_dir has to say where they meet");
  }
  if (place.nodes > 1 && request.config.nodes > 1) {
    refuse("launch.nodes pretends nodes on one machine, but --nnodes says that there are several");
  }
  const bool told = place.nodes > 1 || !place.master.empty();
  if (!request.config.hosts.empty() && told && !place.controlled) {
    refuse(
        "launch.hosts starts all machines from one, so it goes without --nnodes, --node-rank and "
        "--master");
  }
  if (place.master.empty()) return;
  const size_t colon = place.master.rfind(':');
  const std::string port = colon == std::string::npos ? "" : place.master.substr(colon + 1);
  const auto [end, error] =
      std::from_chars(port.data(), port.data() + port.size(), request.master_port);
  const int least = request.config.rendezvous_dir.empty() ? 1 : 0;
  if (colon == 0 || error != std::errc() || end != port.data() + port.size() ||
      request.master_port < least || request.master_port > 65535) {
    refuse(fmt::format("--master: expected HOST:PORT, found \"{}\"", place.master));
  }
  request.master_address = place.master.substr(0, colon);
}

}  // namespace

TrainConfig load_train_config(const TrainArguments& arguments) {
  return parse_train_config(read_file(arguments.config_file), arguments.config_file,
                            arguments.overrides);
}

ExitCode run_training(const TrainArguments& arguments, const TrainerOptions& options,
                      std::ostream& out) {
  const TrainConfig config = load_train_config(arguments);
  const TrainData data = open_train_data(config);
  return train_in(prepare_run_directory(config), config, data, nullptr, options, out);
}

ExitCode run_rank(const TrainArguments& arguments, const RankEnvironment& place,
                  const TrainerOptions& options, std::ostream& out) {
  try {
    const std::unique_ptr<Log> console = make_log();
    TrainConfig config = load_train_config(arguments);
    check_world(config, place.world);
    const TrainData data = open_train_data(config);
    TrainRank rank(config, place, *console);
    const RunDirectory run = rank.open_run_directory();
    if (config.run.threads == 0) {
      config.run.threads =
          place.threads > 0 ? place.threads : std::max(1, available_cores() / place.local_world);
    }
    return train_in(run, config, data, &rank, options, out);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("rank {}: {}", place.rank, error.what()));
  }
}

ExitCode run_launcher(const TrainArguments& arguments, const TrainConfig& config,
                      const NodePlace& place, const std::string& name, bool show_progress) {
  LaunchRequest request;
  request.config = config.launch;
  request.program = std::filesystem::read_symlink("/proc/self/exe").string();
  request.arguments = {name, "--config", arguments.config_file};
  for (const std::string& change : arguments.overrides) {
    request.arguments.insert(request.arguments.end(), {"--set", change});
  }
  request.threads = config.run.threads;
  RunDirectory run;
  run.dir = config.run.dir;
  request.log_dir = run.log_file().parent_path().string();
  request.show_progress = show_progress;
  request.nodes = place.nodes;
  request.node = place.node;
  set_master(place, request);
  if (place.controlled) {
    const ControlLine line = read_control_line(STDIN_FILENO);
    request.control_fd = STDIN_FILENO;
    request.token = line.token;
    request.attempt = line.attempt;
  } else if (place.nodes > 1) {
    const auto secret = process_environment()("ZPP_JOB_TOKEN");
    request.token = secret.value_or(fmt::format("{}/{}", place.master, place.nodes));
  }
  check_world(config, launch_world(request));
  return launch(request, *make_log());
}

void print_plan(const TrainArguments& arguments, int64_t world, std::ostream& out) {
  const TrainConfig config = load_train_config(arguments);
  std::optional<PlanData> facts;
  try {
    facts = open_train_data(config).facts;
  } catch (const Error& error) {
    // A plan is of use before there is any data; data that is there must be good.
    if (error.code() != Code::kNotFound) throw;
  }
  const int64_t ranks = world > 0 ? world : config.launch.world();
  out << plan_text(config, make_plan(config, facts, ranks));
}

void print_advice(const TrainArguments& arguments, const Cluster& cluster, std::ostream& out) {
  const TrainConfig config = load_train_config(arguments);
  out << advice_text(config, make_advice(config, cluster));
}

}  // namespace zpp
