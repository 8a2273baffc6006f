// The options of a plan, which zpp-train --dry-run and zpp-plan share: a number of ranks, or a
// cluster to compare presets on.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <iosfwd>
#include <string>

#include "parallel/advice.h"
#include "tools/train_app.h"

namespace zpp {

struct PlanFlags {
  int64_t world = 0;
  int64_t nodes = 0, ranks_per_node = 0;
  std::string inter, intra, flops, memory;

  bool any_of_cluster() const {
    return nodes != 0 || ranks_per_node != 0 || !inter.empty() || !intra.empty() ||
           !flops.empty() || !memory.empty();
  }
};

void declare_plan(CLI::App& app, PlanFlags& flags);

/// Errors: kInvalidArgument, one sentence, for an option that is missing or is no number with a unit
Cluster parse_cluster(const PlanFlags& flags);

/// Prints the advice if a cluster is described, else the plan.
/// Errors: kInvalidArgument
void print_planned(const TrainArguments& arguments, const PlanFlags& flags, std::ostream& out);

}  // namespace zpp
