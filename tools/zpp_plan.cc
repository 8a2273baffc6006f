// zpp-plan: what a configuration would need and do, without running it.
#include <CLI/CLI.hpp>
#include <iostream>

#include "core/version.h"
#include "tools/plan_flags.h"
#include "tools/program.h"

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
  zpp::PlanFlags flags;
  zpp::declare_plan(app, flags);
  return zpp::run_program(app, argc, argv, [&arguments, &flags] {
    zpp::print_planned(arguments, flags, std::cout);
    return zpp::kExitDone;
  });
}
