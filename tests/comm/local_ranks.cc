#include "tests/comm/local_ranks.h"

#include <fmt/format.h>

#include <thread>

namespace zpp {
namespace {

CpuStream::Options stream_options(const LocalRanksOptions& options, const char* name, int rank) {
  return {.name = name,
          .isa = options.runtime.isa,
          .dry = options.runtime.dry,
          .jitter_us = options.stream_jitter_us,
          .jitter_seed = static_cast<uint64_t>(rank)};
}

void run_rank(LocalNetwork& network, const Topology& topology, const LocalRanksOptions& options,
              int rank, const std::function<void(LocalRank&)>& fn) {
  const auto weights_transport = network.connect(rank, 0);
  const auto grads_transport = network.connect(rank, 1);
  Ledger ledger(topology.levels());
  FlightRecord record;
  Runtime runtime(options.runtime);
  CpuStream weights_stream(runtime.workers(), stream_options(options, "weights", rank));
  CpuStream grads_stream(runtime.workers(), stream_options(options, "grads", rank));
  try {
    const auto plane = [&](Stream& stream, Transport& transport, const std::string& name) {
      return MeshPlane(make_host_communicator(stream, transport, topology,
                                              {.name = name + "/world",
                                               .deadline = options.deadline,
                                               .links = options.links,
                                               .ledger = &ledger,
                                               .record = &record}),
                       topology);
    };
    MeshPlane weights = plane(weights_stream, *weights_transport, "weights");
    MeshPlane grads = plane(grads_stream, *grads_transport, "grads");
    ledger.reset();
    Mesh mesh{topology, weights, grads, &ledger};
    LocalRank context{rank,   topology,           network,          runtime, ledger,
                      record, *weights_transport, *grads_transport, mesh,    grads.world()};
    fn(context);
    runtime.compute().synchronize();
    weights_stream.synchronize();
    grads_stream.synchronize();
  } catch (const Error& error) {
    weights_transport->abort(error);
    grads_transport->abort(error);
    throw;
  } catch (const std::exception& error) {
    weights_transport->abort(Error(Code::kInternal, error.what()));
    grads_transport->abort(Error(Code::kInternal, error.what()));
    throw;
  }
}

}  // namespace

Topology topology_of(const std::vector<int>& sizes) { return Topology::nested(sizes); }

std::vector<std::optional<Error>> run_ranks_to_errors(const Topology& topology,
                                                      const LocalRanksOptions& options,
                                                      const std::function<void(LocalRank&)>& fn) {
  LocalNetwork network(topology, options.network);
  std::vector<std::optional<Error>> errors(static_cast<size_t>(topology.world()));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < topology.world(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        run_rank(network, topology, options, rank, fn);
      } catch (const Error& error) {
        errors[static_cast<size_t>(rank)] = error;
      } catch (const std::exception& error) {
        errors[static_cast<size_t>(rank)] = Error(Code::kInternal, error.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

void run_ranks(const Topology& topology, const LocalRanksOptions& options,
               const std::function<void(LocalRank&)>& fn) {
  const auto errors = run_ranks_to_errors(topology, options, fn);
  const std::optional<Error>* worst = nullptr;
  for (const auto& error : errors) {
    if (!error) continue;
    if (worst == nullptr || (*worst)->code() == Code::kPeerLost) worst = &error;
  }
  if (worst == nullptr) return;
  throw Error((*worst)->code(),
              fmt::format("rank {}: {}", worst - errors.data(), (*worst)->what()));
}

}  // namespace zpp
