#include "parallel/rank_context.h"

#include "core/error.h"

namespace zpp {

RankContext::RankContext(const RankContextOptions& options) : ledger_(options.topology.levels()) {
  weights_.transport = options.connect(0);
  grads_.transport = options.connect(1);
  try {
    RankContextOptions measured = options;
    if (options.measure_links) {
      measured.links = measure_links(*weights_.transport, options.topology, options.deadline);
    }
    open(weights_, "weights", measured);
    open(grads_, "grads", measured);
  } catch (const Error& error) {
    abort(error);
    throw;
  }
  mesh_ = std::make_unique<Mesh>(Mesh{.topology = options.topology,
                                      .weights = *weights_.groups,
                                      .grads = *grads_.groups,
                                      .ledger = &ledger_});
  ledger_.reset();  // of how the groups were agreed on
}

void RankContext::open(Plane& plane, const std::string& name, const RankContextOptions& options) {
  plane.stream =
      std::make_unique<CpuStream>(workers_, CpuStream::Options{.name = name,
                                                               .jitter_us = options.jitter_us,
                                                               .jitter_seed = options.jitter_seed});
  HostCommunicatorOptions communicator;
  communicator.name = name;
  communicator.deadline = options.deadline;
  communicator.links = options.links;
  communicator.ledger = &ledger_;
  communicator.record = &record_;
  plane.groups = std::make_unique<MeshPlane>(
      make_host_communicator(*plane.stream, *plane.transport, options.topology, communicator),
      options.topology);
}

RankContext::~RankContext() {
  for (Plane* plane : {&weights_, &grads_}) {
    try {
      // Tasks use the communicators, which go first.
      if (plane->stream) plane->stream->synchronize();
    } catch (const std::exception&) {
      // Told by whoever waited for the work.
    }
  }
}

void RankContext::abort(const Error& why) noexcept {
  for (Plane* plane : {&weights_, &grads_}) {
    if (plane->transport) plane->transport->abort(why);
  }
}

}  // namespace zpp
