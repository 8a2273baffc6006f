#include "comm/mesh.h"

#include <fmt/format.h>

namespace zpp {
namespace {

/// "weights/world" -> "weights/".
std::string prefix_of(const std::string& world) {
  const size_t slash = world.rfind('/');
  return slash == std::string::npos ? std::string() : world.substr(0, slash + 1);
}

[[noreturn]] void no_such_group(const std::string& which, const Topology& topology) {
  throw Error(Code::kInvalidArgument, fmt::format("mesh: there is no {}; levels go from 0 to {}",
                                                  which, topology.levels()));
}

}  // namespace

MeshPlane::MeshPlane(std::unique_ptr<Communicator> world, const Topology& topology)
    : world_(std::move(world)), topology_(topology) {
  const int levels = topology.levels();
  const int me = world_->members()[static_cast<size_t>(world_->rank())];
  const std::string prefix = prefix_of(world_->name());
  for (int level = 0; level < levels; ++level) {
    group_.push_back(
        world_->subgroup(topology.group(level, me), prefix + topology.level_name(level)));
  }
  across_.resize(static_cast<size_t>(levels));
  for (int inner = 1; inner < levels; ++inner) {
    for (int outer = inner + 1; outer <= levels; ++outer) {
      std::vector<int> ranks;
      for (int rank : topology.group(outer, me)) {
        if ((rank - me) % topology.group_size(inner) == 0) ranks.push_back(rank);
      }
      const std::string name =
          fmt::format("{}{}_of_{}", prefix, topology.level_name(inner), topology.level_name(outer));
      across_[static_cast<size_t>(inner)].push_back(world_->subgroup(ranks, name));
    }
  }
}

Communicator& MeshPlane::group(int level) {
  if (level < 0 || level > topology_.levels()) {
    no_such_group(fmt::format("group({})", level), topology_);
  }
  return level == topology_.levels() ? *world_ : *group_[static_cast<size_t>(level)];
}

Communicator& MeshPlane::across(int inner, int outer) {
  if (inner < 0 || inner >= outer || outer > topology_.levels()) {
    no_such_group(fmt::format("across({}, {})", inner, outer), topology_);
  }
  if (inner == 0) return group(outer);
  return *across_[static_cast<size_t>(inner)][static_cast<size_t>(outer - inner - 1)];
}

}  // namespace zpp
