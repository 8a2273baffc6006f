#include "tools/train_app.h"

#include <fmt/format.h>

#include <iostream>
#include <optional>

#include "core/files.h"
#include "parallel/plan.h"

namespace zpp {

TrainConfig load_train_config(const TrainArguments& arguments) {
  return parse_train_config(read_file(arguments.config_file), arguments.config_file,
                            arguments.overrides);
}

ExitCode run_training(const TrainArguments& arguments, const TrainerOptions& options,
                      std::ostream& out) {
  const TrainConfig config = load_train_config(arguments);
  const TrainData data = open_train_data(config);
  const RunDirectory run = prepare_run_directory(config);
  const std::unique_ptr<Log> log = make_log(run.log_file());
  TrainResult result;
  try {
    result = train(config, data, run, *log, options);
  } catch (const Error& error) {
    log->error(error.what());
    return exit_code(error);
  } catch (const std::exception& error) {
    log->error(error.what());
    return kExitFailed;
  }
  if (!result.sample.empty()) out << "\nSample:\n" << result.sample << "\n\n";
  out << fmt::format("Everything lies in {}: config.json, metrics.jsonl, log/rank-0.log{}\n",
                     run.dir.string(), result.sample.empty() ? "" : ", sample.txt");
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

void print_plan(const TrainArguments& arguments, std::ostream& out) {
  const TrainConfig config = load_train_config(arguments);
  std::optional<PlanData> facts;
  try {
    facts = open_train_data(config).facts;
  } catch (const Error& error) {
    // A plan is of use before there is any data; data that is there must be good.
    if (error.code() != Code::kNotFound) throw;
  }
  out << plan_text(config, make_plan(config, facts));
}

}  // namespace zpp
