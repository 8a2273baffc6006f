// What one rank communicates with: a stream, a transport and a family of communicators for weights,
// and the same again for gradients. Ranks may be processes or threads of one.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "comm/flight_record.h"
#include "comm/host_communicator.h"
#include "comm/ledger.h"
#include "comm/mesh.h"
#include "comm/topology.h"
#include "comm/transport.h"
#include "core/cpu_stream.h"
#include "core/workers.h"

namespace zpp {

struct RankContextOptions {
  Topology topology;
  /// Called with plane 0 for weights, then 1 for gradients.
  std::function<std::unique_ptr<Transport>(int plane)> connect = {};
  Millis deadline{600000};  // of every wait for another rank
  LinkModel links = {};
  /// Times the links first and takes what it finds instead of `links`.
  bool measure_links = false;
  // Tests: see CpuStream::Options.
  int64_t jitter_us = 0;
  uint64_t jitter_seed = 0;
};

class RankContext {
 public:
  /// Connects. All ranks make theirs together; blocks.
  /// Errors: those of the transport
  explicit RankContext(const RankContextOptions& options);
  /// Waits for what is still enqueued.
  ~RankContext();
  RankContext(const RankContext&) = delete;
  RankContext& operator=(const RankContext&) = delete;

  Mesh& mesh() { return *mesh_; }
  Ledger& ledger() { return ledger_; }
  const FlightRecord& record() const { return record_; }
  /// The other ranks' collectives fail with this reason, and those of this one.
  void abort(const Error& why) noexcept;

 private:
  struct Plane {
    std::unique_ptr<Transport> transport;
    std::unique_ptr<CpuStream> stream;
    std::unique_ptr<MeshPlane> groups;
  };
  void open(Plane& plane, const std::string& name, const RankContextOptions& options);

  Ledger ledger_;
  FlightRecord record_;
  // Sums run on the streams' own threads, beside the kernels' team.
  Workers workers_{1};
  Plane weights_, grads_;
  std::unique_ptr<Mesh> mesh_;
};

}  // namespace zpp
