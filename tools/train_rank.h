// One process's part in a job of several: how it meets the others, and how it lets them know when it
// fails.
#pragma once

#include <memory>
#include <string>

#include "comm/rendezvous.h"
#include "comm/store.h"
#include "core/log.h"
#include "parallel/rank_context.h"
#include "parallel/run_directory.h"
#include "parallel/train_config.h"
#include "tools/rank_environment.h"

namespace zpp {

class TrainRank {
 public:
  /// Meets the other ranks and checks that all run the same program and configuration. Blocks.
  /// Errors: kTimeout naming the ranks that are missing; kInvalidArgument for a token of another job,
  ///         another configuration than rank 0's, or ranks that do not make a topology; kIo for a port
  ///         that is taken
  TrainRank(const TrainConfig& config, const RankEnvironment& place, Log& log);

  /// Rank 0 prepares the run directory, the others take part in it.
  /// Errors: as prepare_run_directory(); kPeerLost when that failed at rank 0
  RunDirectory open_run_directory();

  /// Connects to the other ranks; once.
  Mesh& connect();

  /// Lets the others know and leaves a record of this rank's last operations.
  void fail(const Error& error, const RunDirectory& run, Log& log) noexcept;

  /// "rank 3 of 8 (host gpu7, pid 4711)"
  std::string describe() const;

 private:
  void open_store(Log& log);
  void compare_configurations();

  const TrainConfig& config_;
  const RankEnvironment place_;
  // In the order that destroys safely: transports look up addresses in the store.
  std::unique_ptr<TcpStoreServer> server_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Rendezvous> met_;
  std::unique_ptr<RankContext> context_;
};

}  // namespace zpp
