#include "tools/train_rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <vector>

#include "comm/ucx_transport.h"
#include "core/error.h"
#include "core/files.h"
#include "core/version.h"
#include "parallel/launch_config.h"
#include "tools/job_store.h"

namespace zpp {
namespace {

constexpr char kConfiguration[] = "rank-0/configuration";
constexpr char kRunDirectory[] = "rank-0/run-directory";

/// The first line in which two texts differ, as "here: ..., there: ...".
std::string first_difference(const std::string& here, const std::string& there) {
  std::istringstream a(here), b(there);
  std::string of_a, of_b;
  while (true) {
    const bool more_a = static_cast<bool>(std::getline(a, of_a));
    const bool more_b = static_cast<bool>(std::getline(b, of_b));
    if (!more_a) of_a = "nothing";
    if (!more_b) of_b = "nothing";
    if ((!more_a && !more_b) || of_a != of_b) break;
  }
  const auto trimmed = [](const std::string& line) {
    return line.substr(std::min(line.find_first_not_of(' '), line.size()));
  };
  return fmt::format("here: {}, at rank 0: {}", trimmed(of_a), trimmed(of_b));
}

}  // namespace

TrainRank::TrainRank(const TrainConfig& config, const RankEnvironment& place, Log& log)
    : config_(config), place_(place) {
  const std::vector<int> nested = nested_sizes(config.launch, place.world);
  open_store(log);
  met_ = std::make_unique<Rendezvous>(
      meet(*store_, place_.rank, place_.world, nested, config.launch.timeout()));
  compare_configurations();
}

void TrainRank::open_store(Log& log) {
  const LaunchSection& launch = config_.launch;
  StorePlace where{.directory = launch.rendezvous_dir,
                   .address = place_.master_address,
                   .port = place_.master_port,
                   .token = place_.token,
                   .attempt = place_.attempt};
  if (!place_.launched && where.directory.empty()) {
    if (!launch.master_address.empty()) where.address = launch.master_address;
    if (launch.master_port != 0) where.port = static_cast<int>(launch.master_port);
    if (where.address.empty() || where.port == 0) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("{} does not say where rank 0 can be met: set MASTER_ADDR and "
                              "MASTER_PORT, launch.master_address and launch.master_port, or "
                              "launch.rendezvous_dir",
                              place_.source));
    }
    if (place_.rank == 0) {
      server_ = std::make_unique<TcpStoreServer>(
          static_cast<uint16_t>(where.port), place_.token,
          [&log](const std::string& text) { log.warn("rendezvous: " + text); });
      where.address = "127.0.0.1";
    }
  }
  store_ = connect_store(where, launch.timeout());
}

void TrainRank::compare_configurations() {
  const std::string mine = version_text() + "\n" + dump_config(config_);
  if (place_.rank == 0) {
    store_->set(kConfiguration, mine);
    return;
  }
  const std::string theirs = store_->get(kConfiguration, config_.launch.timeout());
  if (mine != theirs) {
    throw Error(Code::kInvalidArgument,
                fmt::format("this rank's program or configuration is not rank 0's; {}",
                            first_difference(mine, theirs)));
  }
}

RunDirectory TrainRank::open_run_directory() {
  if (place_.rank != 0) {
    const std::string problem = store_->get(kRunDirectory, config_.launch.timeout());
    if (!problem.empty()) throw Error(Code::kPeerLost, "rank 0 has failed: " + problem);
    return join_run_directory(config_, place_.rank);
  }
  try {
    RunDirectory run = prepare_run_directory(config_);
    store_->set(kRunDirectory, "");
    return run;
  } catch (const Error& error) {
    store_->set(kRunDirectory, error.what());
    throw;
  }
}

Mesh& TrainRank::connect() {
  const LaunchSection& launch = config_.launch;
  UcxOptions ucx;
  ucx.interfaces = launch.interfaces;
  ucx.transports = launch.transports;
  ucx.connect_timeout = launch.timeout();
  const auto plane = [&](int number) { return make_ucx_transport(*store_, *met_, number, ucx); };
  RankContextOptions options{.topology = met_->topology, .connect = plane};
  options.deadline = launch.timeout();
  options.measure_links = launch.measure_links;
  context_ = std::make_unique<RankContext>(options);
  return context_->mesh();
}

void TrainRank::fail(const Error& error, const RunDirectory& run, Log& log) noexcept {
  if (!context_) return;
  context_->abort(error);
  try {
    write_file_atomic(run.flight_file(), context_->record().text());
    log.info(
        fmt::format("the last operations of {} are in {}", describe(), run.flight_file().string()));
  } catch (const std::exception& also) {
    log.error(also.what());
  }
}

std::string TrainRank::describe() const { return met_->describe(place_.rank); }

}  // namespace zpp
