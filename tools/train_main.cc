// The command line of zpp-train, and of every trainer that links it with models of its own.
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <iostream>

#include "core/version.h"
#include "tools/program.h"
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
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

struct Flags {
  zpp::TrainArguments arguments;
  bool dry_run = false, print_config = false, help_config = false;
  std::string resume = "none", master;
  int64_t nnodes = 1, node_rank = 0;
};

void declare(CLI::App& app, Flags& flags) {
  app.footer(
      "Keys of the configuration: --help-config. Exit status: 0 done, 1 failed while running, "
      "2 bad input, 3 stopped by a signal after finishing the step.");
  app.add_option("--config", flags.arguments.config_file, "JSON file; // comments allowed")
      ->type_name("FILE");
  app.add_option("--set", flags.arguments.overrides,
                 "path.key=value, replaces one value of the configuration; may be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  app.add_flag("--dry-run", flags.dry_run,
               "print parameters, memory by kind and work of the run, and end");
  app.add_flag("--print-config", flags.print_config,
               "print the configuration with all defaults filled in, and end");
  app.add_flag("--help-config", flags.help_config, "print what each key means, and end");
  app.set_version_flag("--version", zpp::version_text());
  app.add_option("--resume", flags.resume,
                 "auto, none or a checkpoint's directory; only none until there are checkpoints")
      ->type_name("WHAT")
      ->capture_default_str();
  app.add_option("--nnodes", flags.nnodes, "machines; only 1 in this build")->capture_default_str();
  app.add_option("--node-rank", flags.node_rank, "which of them this is; only 0 in this build")
      ->capture_default_str();
  app.add_option("--master", flags.master, "address of the first machine; not in this build")
      ->type_name("HOST:PORT");
}

void check(const Flags& flags) {
  const auto refuse = [](const std::string& text) {
    throw zpp::Error(zpp::Code::kInvalidArgument, text);
  };
  if (flags.resume != "none") {
    refuse("--resume " + flags.resume + ": this build writes no checkpoints to resume from");
  }
  if (flags.nnodes != 1) refuse("--nnodes: this build trains in one process on one machine");
  if (flags.node_rank != 0) refuse("--node-rank: this build trains in one process on one machine");
  if (!flags.master.empty()) refuse("--master: this build trains in one process on one machine");
  if (flags.arguments.config_file.empty() && !flags.help_config) {
    refuse("--config FILE is needed; --help tells more");
  }
}

int run(const Flags& flags) {
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
    zpp::print_plan(flags.arguments, std::cout);
    return zpp::kExitDone;
  }
  catch_signals();
  zpp::TrainerOptions options;
  options.stop_requested = [] { return stop_signal != 0; };
  if (::isatty(STDERR_FILENO) != 0) {
    options.show_progress = [](std::string_view line) {
      std::cerr << "\r\033[K" << line << std::flush;
    };
  }
  return zpp::run_training(flags.arguments, options, std::cout);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Trains a GPT from a configuration.",
               std::filesystem::path(argv[0]).filename().string());
  Flags flags;
  declare(app, flags);
  return zpp::run_program(app, argc, argv, [&flags] { return run(flags); });
}
