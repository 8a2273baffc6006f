#include "tools/rank_environment.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>

#include "core/error.h"

namespace zpp {
namespace {

constexpr int64_t kMost = 1 << 20;

int64_t parse(const std::string& name, const std::string& value, int64_t least, int64_t most) {
  int64_t number = 0;
  const char* const end = value.data() + value.size();
  const auto [rest, error] = std::from_chars(value.data(), end, number);
  if (error != std::errc() || rest != end || number < least || number > most) {
    throw Error(Code::kInvalidArgument,
                fmt::format("environment: expected {} to be a number from {} to {}, found \"{}\"",
                            name, least, most, value));
  }
  return number;
}

/// A variable as a number; `missing` if it is not set.
int number(const Environment& environment, const std::string& name, int64_t missing,
           int64_t least = 0, int64_t most = kMost) {
  const std::optional<std::string> value = environment(name);
  return static_cast<int>(value ? parse(name, *value, least, most) : missing);
}

/// A port that follows from a job's identifier, where nothing else says one: another job on the same
/// machine gets another one.
int port_of(const std::string& job) {
  uint32_t hash = 2166136261;
  for (const char c : job) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619;
  // Below the ports that Linux gives to outgoing connections.
  return static_cast<int>(15000 + hash % 15000);
}

/// How many ranks share the machine, from "4(x2),3": the counts of each node in a row.
int tasks_of_node(const std::string& counts, int64_t node) {
  const char* at = counts.data();
  const char* const end = at + counts.size();
  while (at < end) {
    int count = 0, times = 1;
    const auto [rest, error] = std::from_chars(at, end, count);
    if (error != std::errc()) break;
    at = rest;
    if (end - at > 2 && at[0] == '(' && at[1] == 'x') {
      at = std::from_chars(at + 2, end, times).ptr;
      if (at < end) ++at;  // ')'
    }
    if (node < times) return count;
    node -= times;
    if (at < end) ++at;  // ','
  }
  return 1;
}

/// RANK and its companions. torchrun's own store has MASTER_PORT when its agent keeps it.
std::optional<RankEnvironment> from_variables(const Environment& environment) {
  if (!environment("RANK") || !environment("WORLD_SIZE")) return std::nullopt;
  RankEnvironment place;
  place.source = "RANK and WORLD_SIZE";
  place.rank = number(environment, "RANK", 0);
  place.world = number(environment, "WORLD_SIZE", 1, 1);
  place.local_rank = number(environment, "LOCAL_RANK", 0);
  place.local_world = number(environment, "LOCAL_WORLD_SIZE", 1, 1);
  place.launched = environment("ZPP_LAUNCHED").has_value();
  place.attempt = number(environment, "ZPP_ATTEMPT", 0);
  place.threads = number(environment, "ZPP_THREADS", 0);
  place.show_progress = environment("ZPP_PROGRESS").has_value();
  place.master_address = environment("MASTER_ADDR").value_or("");
  place.master_port = number(environment, "MASTER_PORT", 0, 0, 65535);
  if (environment("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True") {
    place.source = "torchrun";
    // Its neighbour, then; some free port that all ranks can work out.
    if (place.master_port != 0) place.master_port += place.master_port < 65535 ? 1 : -1;
  }
  place.token = fmt::format("{}/{}/{}", environment("TORCHELASTIC_RUN_ID").value_or("job"),
                            environment("TORCHELASTIC_RESTART_COUNT").value_or("0"), place.world);
  return place;
}

std::optional<RankEnvironment> from_slurm(const Environment& environment) {
  // A batch script has most of Slurm's variables too; only a step is made of ranks.
  if (!environment("SLURM_PROCID") || !environment("SLURM_STEP_ID")) return std::nullopt;
  RankEnvironment place;
  place.source = "Slurm";
  place.rank = number(environment, "SLURM_PROCID", 0);
  place.world =
      number(environment, "SLURM_STEP_NUM_TASKS", number(environment, "SLURM_NTASKS", 1, 1), 1);
  place.local_rank = number(environment, "SLURM_LOCALID", 0);
  place.local_world = tasks_of_node(environment("SLURM_STEP_TASKS_PER_NODE").value_or(""),
                                    number(environment, "SLURM_NODEID", 0));
  place.threads = number(environment, "SLURM_CPUS_PER_TASK", 0);
  place.master_address =
      environment("MASTER_ADDR")
          .value_or(
              first_host(environment("SLURM_STEP_NODELIST")
                             .value_or(environment("SLURM_LAUNCH_NODE_IPADDR").value_or(""))));
  place.token =
      fmt::format("{}.{}.{}", environment("SLURM_JOB_ID").value_or(""),
                  *environment("SLURM_STEP_ID"), environment("SLURM_RESTART_COUNT").value_or("0"));
  place.master_port = number(environment, "MASTER_PORT", port_of(place.token), 0, 65535);
  return place;
}

std::optional<RankEnvironment> from_open_mpi(const Environment& environment) {
  if (!environment("OMPI_COMM_WORLD_RANK")) return std::nullopt;
  RankEnvironment place;
  place.source = "Open MPI";
  place.rank = number(environment, "OMPI_COMM_WORLD_RANK", 0);
  place.world = number(environment, "OMPI_COMM_WORLD_SIZE", 1, 1);
  place.local_rank = number(environment, "OMPI_COMM_WORLD_LOCAL_RANK", 0);
  place.local_world = number(environment, "OMPI_COMM_WORLD_LOCAL_SIZE", 1, 1);
  const bool one_machine = place.local_world == place.world;
  place.master_address = environment("MASTER_ADDR").value_or(one_machine ? "127.0.0.1" : "");
  const auto job = environment("OMPI_MCA_ess_base_jobid");
  place.token = job ? *job : environment("PMIX_NAMESPACE").value_or("job");
  place.master_port = number(environment, "MASTER_PORT", port_of(place.token), 0, 65535);
  return place;
}

}  // namespace

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return value;
  };
}

std::string first_host(const std::string& nodelist) {
  const size_t end = nodelist.find_first_of("[,");
  if (end == std::string::npos || nodelist[end] == ',') return nodelist.substr(0, end);
  const size_t close = nodelist.find(']', end);
  if (close == std::string::npos) return nodelist;
  const size_t stop = nodelist.find_first_of(",-]", end + 1);
  return nodelist.substr(0, end) + nodelist.substr(end + 1, stop - end - 1) +
         first_host(nodelist.substr(close + 1));
}

std::optional<RankEnvironment> find_place(const Environment& environment) {
  std::optional<RankEnvironment> place = from_variables(environment);
  // A shell inside an allocation is often a job of one itself; ranks may still be under it.
  if (!place || (place->world == 1 && !place->launched)) place = from_slurm(environment);
  if (!place || (place->world == 1 && !place->launched)) place = from_open_mpi(environment);
  if (!place || (place->world == 1 && !place->launched)) return std::nullopt;
  if (const auto token = environment("ZPP_JOB_TOKEN")) place->token = *token;
  if (place->rank >= place->world) {
    throw Error(Code::kInvalidArgument,
                fmt::format("environment: {} says that this is rank {} of {}", place->source,
                            place->rank, place->world));
  }
  return place;
}

}  // namespace zpp
