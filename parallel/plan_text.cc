// The table of a plan.
#include <fmt/format.h>

#include <algorithm>

#include "core/human.h"
#include "parallel/plan.h"

namespace zpp {
namespace {

void add_units(std::string& out, const Plan& plan) {
  size_t width = 24;
  for (const Plan::UnitRow& unit : plan.units) {
    for (const Plan::ParameterRow& p : unit.parameters) width = std::max(width, p.name.size() + 2);
  }
  out += fmt::format("{:<{}}{:>24}{:>20}\n", "parameters", width + 2, "shape", "count");
  for (const Plan::UnitRow& unit : plan.units) {
    const std::string name =
        unit.copies == 1 ? unit.first
                         : fmt::format("{} to {}: {} times", unit.first, unit.last, unit.copies);
    out += fmt::format("{:<{}}{:>24}{:>20}\n", name, width + 2, "",
                       with_commas(unit.copies * unit.numel));
    for (const Plan::ParameterRow& p : unit.parameters) {
      out += fmt::format("  {:<{}}{:>24}{:>20}\n", p.name, width, p.shape.str(),
                         with_commas(p.shape.numel()));
    }
  }
  out +=
      fmt::format("{:<{}}{:>24}{:>20}\n\n", "total", width + 2, "", with_commas(plan.parameters));
}

void add_memory(std::string& out, const TrainConfig& config, const Plan& plan) {
  const auto line = [&out](std::string_view what, int64_t bytes, std::string_view note) {
    out += fmt::format("  {:<28}{:>12}{:>24}{}{}\n", what, human_bytes(bytes), with_commas(bytes),
                       note.empty() ? "" : "   ", note);
  };
  const std::string batch = fmt::format(
      "micro-batch of {} x {} tokens{}", config.micro_batch(plan.world), config.facts.context,
      config.train.recompute == "unit" ? ", recomputing units" : "");
  if (plan.world == 1) {
    out += fmt::format("memory{:>36}{:>24}\n", "", "bytes");
  } else {
    out += fmt::format("memory of each of {}, {}\n", plan.groups, config.zero.preset);
  }
  line("weights", plan.weights, config.precision.compute);
  if (plan.replica > 0) line("replica in the node", plan.replica, config.zero.replica_storage);
  line("master weights", plan.master, plan.master == 0 ? "the weights themselves" : "f32");
  line("optimizer moments", plan.moments, "");
  line("gradients", plan.gradients, "");
  if (plan.world > 1) {
    line("gathered and reduced units", plan.passing,
         fmt::format("{} ahead", config.zero.prefetch_units));
  }
  line("activations and scratch", plan.working, batch);
  line("pool", plan.pool, "all of the above, exact");
  line("data files, mapped", plan.mapped, "pages that the run touches");
  line("process and libraries", plan.process, "a constant, measured");
  line("total", plan.total(), "");
  if (plan.available) line("available here", *plan.available, "");
  out += '\n';
}

void add_work(std::string& out, const TrainConfig& config, const Plan& plan) {
  const auto line = [&out](std::string_view what, const std::string& value) {
    out += fmt::format("  {:<28}{}\n", what, value);
  };
  out += "work\n";
  line("steps", with_commas(plan.steps));
  line("tokens per step", fmt::format("{} ({} sequences of {}, micro-batches: {})",
                                      with_commas(plan.tokens_per_step), config.train.global_batch,
                                      config.facts.context, config.micro_batches(plan.world)));
  line("tokens in all", with_commas(plan.tokens_per_step * plan.steps));
  line("steps per epoch", plan.steps_per_epoch
                              ? fmt::format("{:.1f} ({:.2f} epochs in all)", *plan.steps_per_epoch,
                                            static_cast<double>(plan.steps) / *plan.steps_per_epoch)
                              : "not known: the data files are not there");
  line("FLOPs per token", human_number(plan.flops_per_token));
  line("FLOPs in all", human_number(plan.total_flops()));
}

}  // namespace

std::string plan_text(const TrainConfig& config, const Plan& plan) {
  std::string out =
      fmt::format("{}: {} parameters\n\n", config.run.name, with_commas(plan.parameters));
  add_units(out, plan);
  add_memory(out, config, plan);
  add_work(out, config, plan);
  if (plan.available && plan.total() > *plan.available) {
    out += fmt::format("\nThis machine has {} available, {} less than the run would need.\n",
                       human_bytes(*plan.available), human_bytes(plan.total() - *plan.available));
  }
  return out;
}

}  // namespace zpp
