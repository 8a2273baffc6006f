// The command line of zpp-train, and of every trainer that links it with models of its own.
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <iostream>

#include "comm/ucx_transport.h"
#include "core/version.h"
#include "tools/plan_flags.h"
#include "tools/program.h"
#include "tools/rank_environment.h"
#include "tools/train_app.h"

namespace {

// A signal handler has nothing but globals.
volatile std::sig_atomic_t stop_signal = 0;

volatile std::sig_atomic_t stop_second = 0;

/// A first signal asks for a clean end. Launchers and terminals often send it twice in a row; one that
/// comes more than a second later ends the process at once.
void on_stop_signal(int signal) {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  const auto second = static_cast<std::sig_atomic_t>(now.tv_sec);
  if (stop_signal == 0) {
    stop_signal = signal;
    stop_second = second;
  } else if (second > stop_second + 1) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
}

void catch_signals() {
  struct sigaction action = {};
  action.sa_handler = on_stop_signal;
  action.sa_flags = SA_RESTART;
  // SIGUSR1 is what batch systems send before a job's time is up.
  for (const int number : {SIGINT, SIGTERM, SIGUSR1}) ::sigaction(number, &action, nullptr);
}

struct Flags {
  zpp::TrainArguments arguments;
  bool dry_run = false, print_config = false, help_config = false, controlled = false;
  std::string resume = "none", master;
  int64_t nnodes = 1, node_rank = 0;
  zpp::PlanFlags plan;
};

void declare(CLI::App& app, Flags& flags) {
  app.footer(
      "Starts launch.ranks_per_node processes when that is more than one, takes its place when "
      "started by torchrun, Slurm or Open MPI, and starts launch.hosts through ssh.\n"
      "Keys of the configuration: --help-config. Exit status: 0 done, 1 failed while running, "
      "2 bad input, 3 stopped by SIGINT, SIGTERM or SIGUSR1 after finishing the step, 4 failed "
      "because another process of the job did.");
  app.add_option("--config", flags.arguments.config_file, "JSON file; // comments allowed")
      ->type_name("FILE");
  app.add_option("--set", flags.arguments.overrides,
                 "path.key=value, replaces one value of the configuration; may be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  app.add_flag("--dry-run", flags.dry_run,
               "print parameters, memory by kind and work of the run, and end; for a cluster: "
               "what every preset would need and do");
  zpp::declare_plan(app, flags.plan);
  app.add_flag("--print-config", flags.print_config,
               "print the configuration with all defaults filled in, and end");
  app.add_flag("--help-config", flags.help_config, "print what each key means, and end");
  app.set_version_flag("--version", zpp::version_text());
  app.add_option("--resume", flags.resume,
                 "auto, none or a checkpoint's directory; only none until there are checkpoints")
      ->type_name("WHAT")
      ->capture_default_str();
  app.add_option("--nnodes", flags.nnodes, "machines of the job; run once on each of them")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 14));
  app.add_option("--node-rank", flags.node_rank, "which of them this is, from 0")
      ->capture_default_str();
  app.add_option("--master", flags.master, "where machine 0 can be met by the others")
      ->type_name("HOST:PORT");
  // By another launcher: its wishes come through the standard input.
  app.add_flag("--controlled", flags.controlled)->group("");
}

[[noreturn]] void refuse(const std::string& text) {
  throw zpp::Error(zpp::Code::kInvalidArgument, text);
}

void check(const Flags& flags) {
  if (flags.resume != "none") {
    refuse("--resume " + flags.resume + ": this build writes no checkpoints to resume from");
  }
  if (flags.arguments.config_file.empty() && !flags.help_config) {
    refuse("--config FILE is needed; --help tells more");
  }
  if (flags.dry_run) return;
  if (flags.plan.world != 0) refuse("--world only means something with --dry-run");
  if (flags.plan.any_of_cluster()) {
    refuse(
        "--nodes, --ranks-per-node, --inter, --intra, --flops and --memory only mean something "
        "with --dry-run");
  }
}

bool on_terminal() { return ::isatty(STDERR_FILENO) != 0; }

int launch(const Flags& flags, const std::string& name, const zpp::TrainConfig& config) {
  zpp::NodePlace node{.nodes = static_cast<int>(flags.nnodes),
                      .node = static_cast<int>(flags.node_rank),
                      .master = flags.master,
                      .controlled = flags.controlled};
  return zpp::run_launcher(flags.arguments, config, node, name, on_terminal());
}

int train(const Flags& flags, const zpp::RankEnvironment* place) {
  catch_signals();
  zpp::TrainerOptions options;
  options.stop_requested = [] { return stop_signal != 0; };
  const bool shown = place == nullptr ? on_terminal() : place->show_progress;
  if (shown) {
    options.show_progress = [](std::string_view line) {
      std::cerr << "\r\033[K" << line << std::flush;
    };
  }
  if (place != nullptr) return zpp::run_rank(flags.arguments, *place, options, std::cout);
  return zpp::run_training(flags.arguments, options, std::cout);
}

int run(const Flags& flags, const std::string& name) {
  check(flags);
  if (flags.help_config) {
    std::cout << zpp::document_train_config();
    return zpp::kExitDone;
  }
  if (flags.print_config) {
    std::cout << zpp::dump_config(zpp::load_train_config(flags.arguments));
    return zpp::kExitDone;
  }
  if (flags.dry_run) {
    zpp::print_planned(flags.arguments, flags.plan, std::cout);
    return zpp::kExitDone;
  }
  const bool told = flags.nnodes != 1 || flags.node_rank != 0 || !flags.master.empty();
  const auto place = zpp::find_place(zpp::process_environment());
  if (place && (place->launched || !told)) return train(flags, &*place);
  const zpp::TrainConfig config = zpp::load_train_config(flags.arguments);
  if (told || config.launch.world() > 1 || !config.launch.hosts.empty()) {
    return launch(flags, name, config);
  }
  return train(flags, nullptr);
}

}  // namespace

int main(int argc, char** argv) {
  zpp::quiet_ucx();
  CLI::App app("Trains a GPT from a configuration.",
               std::filesystem::path(argv[0]).filename().string());
  Flags flags;
  declare(app, flags);
  return zpp::run_program(app, argc, argv, [&flags, argv] { return run(flags, argv[0]); });
}
