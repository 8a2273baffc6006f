// zpp-plan: what a configuration would need and do, without running it.
#include <CLI/CLI.hpp>
#include <iostream>

#include "core/version.h"
#include "tools/program.h"
#include "tools/train_app.h"

int main(int argc, char** argv) {
  CLI::App app("Parameters, memory by kind and work of a configuration, without running it.",
               "zpp-plan");
  app.footer("Exit status: 0 done, 1 failed while running, 2 bad input.");
  app.set_version_flag("--version", zpp::version_text());
  zpp::TrainArguments arguments;
  app.add_option("--config", arguments.config_file, "JSON file; // comments allowed")
      ->type_name("FILE")
      ->required();
  app.add_option("--set", arguments.overrides,
                 "path.key=value, replaces one value of the configuration; may be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  int64_t world = 0;
  app.add_option("--world", world, "as if there were that many ranks; default: what launch says")
      ->check(CLI::Range(1, 1 << 20));
  return zpp::run_program(app, argc, argv, [&arguments, &world] {
    zpp::print_plan(arguments, world, std::cout);
    return zpp::kExitDone;
  });
}
