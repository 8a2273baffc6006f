#include "parallel/rank_groups.h"

#include <array>

#include "core/cpu_stream.h"

namespace zpp {
namespace {

Topology single() {
  constexpr std::array<int, 1> kOne = {1};
  return Topology::nested(kOne);
}

/// Fills in the groups from the function that finds the one between two levels.
template <class Between>
PlaneGroups make_groups(const Topology& topology, const ShardLevels& levels, Stream& stream,
                        const Between& between) {
  const auto group = [&](int inner, int outer) -> Communicator* {
    return topology.group_size(inner) == topology.group_size(outer) ? nullptr
                                                                    : between(inner, outer);
  };
  return {.stream = &stream,
          .params = group(0, levels.params),
          .grads = group(levels.params, levels.grads),
          .optimizer = group(levels.grads, levels.optimizer),
          .copies = group(levels.optimizer, topology.levels()),
          .node = topology.levels() > 1 ? group(0, 1) : nullptr};
}

PlaneGroups mesh_groups(const Topology& topology, const ShardLevels& levels, MeshPlane& plane) {
  return make_groups(topology, levels, plane.stream(), [&](int inner, int outer) {
    return inner == 0 ? &plane.group(outer) : &plane.across(inner, outer);
  });
}

/// Takes part in nothing.
class PretendedCommunicator final : public Communicator {
 public:
  PretendedCommunicator(std::string name, int ranks, Stream& stream)
      : Communicator(std::move(name), 0, first_ranks(ranks)), stream_(stream) {}

  Stream& stream() override { return stream_; }
  std::unique_ptr<Communicator> split(int, int, const std::string& name) override {
    return std::make_unique<PretendedCommunicator>(name, size(), stream_);
  }
  std::unique_ptr<Communicator> subgroup(const std::vector<int>& ranks,
                                         const std::string& name) override {
    return std::make_unique<PretendedCommunicator>(name, static_cast<int>(ranks.size()), stream_);
  }
  void abort(const Error&) noexcept override {}

 protected:
  void do_all_gather(const View&, const View&) override {}
  void do_all_gather_parts(const View&, const View&, const std::vector<int64_t>&) override {}
  void do_coded_reduce_scatter(const View&, const View&, const CodedReduction&) override {}
  void do_reduce_scatter(const View&, const View&, ReduceOp) override {}
  void do_all_reduce(const View&, ReduceOp) override {}
  void do_broadcast(const View&, int) override {}
  void do_all_to_all(const View&, const View&) override {}
  void do_barrier() override {}

 private:
  static std::vector<int> first_ranks(int n) {
    std::vector<int> ranks(static_cast<size_t>(n));
    for (int i = 0; i < n; ++i) ranks[static_cast<size_t>(i)] = i;
    return ranks;
  }
  Stream& stream_;
};

void drain_stream(Stream* stream) noexcept {
  if (stream == nullptr) return;
  try {
    stream->synchronize();
  } catch (...) {
    // Whoever enqueued the work hears of it from its events.
  }
}

}  // namespace

/// Dry streams and communicators of a world that is not there.
struct RankGroups::Pretended {
  Workers workers{1};
  CpuStream weights{workers, {.name = "weights", .dry = true}};
  CpuStream grads{workers, {.name = "grads", .dry = true}};
  std::vector<std::unique_ptr<Communicator>> groups;

  Communicator* make(Stream& stream, int ranks) {
    groups.push_back(std::make_unique<PretendedCommunicator>("pretended", ranks, stream));
    return groups.back().get();
  }
};

RankGroups::RankGroups() : topology_(single()), layout_(topology_, levels_, 0) {}

RankGroups::RankGroups(const Mesh& mesh, const ZeroConfig& config)
    : topology_(mesh.topology),
      rank_(mesh.grads.world().rank()),
      levels_(shard_levels(config, topology_)),
      layout_(topology_, levels_, rank_),
      ledger_(mesh.ledger) {
  if (world() == 1) return;
  weights_ = mesh_groups(topology_, levels_, mesh.weights);
  grads_ = mesh_groups(topology_, levels_, mesh.grads);
  weights_world_ = &mesh.weights.world();
  grads_world_ = &mesh.grads.world();
  if (topology_.group_size(1) > 1) node_ = &mesh.grads.group(1);
  control_ = grads_world_->subgroup(grads_world_->members(), "control");
}

RankGroups::RankGroups(const Topology& pretended, const ZeroConfig& config)
    : topology_(pretended),
      levels_(shard_levels(config, topology_)),
      layout_(topology_, levels_, 0),
      pretended_(std::make_unique<Pretended>()) {
  if (world() == 1) return;
  const auto groups = [&](Stream& stream) {
    return make_groups(topology_, levels_, stream, [&](int inner, int outer) {
      return pretended_->make(stream, topology_.group_size(outer) / topology_.group_size(inner));
    });
  };
  weights_ = groups(pretended_->weights);
  grads_ = groups(pretended_->grads);
  control_ = std::make_unique<PretendedCommunicator>("control", world(), pretended_->grads);
  if (topology_.group_size(1) > 1) node_ = control_.get();
}

RankGroups::~RankGroups() { drain(); }

void RankGroups::abort(const Error& why) noexcept {
  if (weights_world_ != nullptr) weights_world_->abort(why);
  if (grads_world_ != nullptr) grads_world_->abort(why);
}

void RankGroups::drain() noexcept {
  drain_stream(weights_.stream);
  drain_stream(grads_.stream);
}

}  // namespace zpp
