#include "comm/host_communicator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "comm/by_level.h"
#include "comm/coded_reduce.h"
#include "comm/exchange.h"
#include "comm/levels.h"
#include "comm/ring.h"
#include "comm/tree.h"

namespace zpp {
namespace {

constexpr uint32_t kChannels = 1000;  // a transport's last ones are not for communicators
constexpr uint32_t kSequences = 1u << 20;

/// What the communicators of one stream share.
struct Plane {
  Transport& transport;
  Topology topology;
  HostCommunicatorOptions options;
  Isa isa;
  Scratch scratch;            // of the stream's tasks
  uint32_t next_channel = 0;  // of the host thread
};

/// What the tasks of a communicator need. They keep it alive: a communicator may go before its last
/// task has run.
struct Group {
  std::shared_ptr<Plane> plane;
  std::string name;
  std::vector<int> members;
  int me;
  uint32_t channel;
};

std::byte* bytes_of(const View& view) { return static_cast<std::byte*>(view.data); }

Reduction reduction_of(ReduceOp op, DType dtype, DType out_dtype, int size) {
  return {
      .kind = op == ReduceOp::kMax ? kernels::HostReduction::kMax : kernels::HostReduction::kSum,
      .dtype = dtype,
      .out_dtype = out_dtype,
      .scale = op == ReduceOp::kAvg ? 1.0 / size : 1.0};
}

/// A collective as ledger and flight record know it.
struct Call {
  std::string group;
  Operation operation;
  uint32_t sequence;
  int64_t bytes;
};

using Algorithmic = std::function<void(Exchange&)>;

/// The task of one collective. When it fails, so does everybody else: the peers would wait for
/// messages that never come.
void perform(const Group& group, const Call& call, const Algorithmic& algorithm) {
  Plane& plane = *group.plane;
  FlightRecord* record = plane.options.record;
  const auto handle =
      record == nullptr ? 0 : record->begin(call.group, call.operation, call.sequence, call.bytes);
  const auto begin = std::chrono::steady_clock::now();
  const auto failed = [&](const Error& error) {
    plane.transport.abort(error);
    if (record != nullptr) record->end(handle, error.what());
  };
  Exchange exchange({plane.transport, plane.topology, group.members, group.me,
                     plane.options.deadline, plane.isa, plane.scratch},
                    {group.channel, call.operation, call.sequence, 0});
  try {
    algorithm(exchange);
  } catch (const Error& error) {
    const Error named(error.code(), fmt::format("{}: {}", call.group, error.what()));
    failed(named);
    throw named;
  } catch (const std::exception& error) {
    failed(Error(Code::kInternal, error.what()));
    throw;
  }
  if (record != nullptr) record->end(handle);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  if (plane.options.ledger != nullptr) {
    plane.options.ledger->add(call.group, call.operation, seconds.count(), exchange.sent_bytes());
  }
}

class HostCommunicator final : public Communicator {
 public:
  HostCommunicator(Stream& stream, std::shared_ptr<const Group> group)
      : Communicator(group->name, group->me, group->members),
        stream_(stream),
        group_(std::move(group)),
        chain_(level_chain(plane().topology, members())) {}

  Stream& stream() override { return stream_; }
  std::unique_ptr<Communicator> split(int color, int key, const std::string& name) override;
  std::unique_ptr<Communicator> subgroup(const std::vector<int>& wanted,
                                         const std::string& name) override;
  void abort(const Error& why) noexcept override { plane().transport.abort(why); }

 protected:
  void do_all_gather(const View& in, const View& out) override;
  void do_all_gather_parts(const View& in, const View& out,
                           const std::vector<int64_t>& ends) override;
  void do_coded_reduce_scatter(const View& in, const View& out, const CodedReduction& how) override;
  void do_reduce_scatter(const View& in, const View& out, ReduceOp op) override;
  void do_all_reduce(const View& inout, ReduceOp op) override;
  void do_broadcast(const View& inout, int root) override;
  void do_all_to_all(const View& in, const View& out) override;
  void do_barrier() override;

 private:
  Plane& plane() const { return *group_->plane; }
  bool dry() const {
    const auto* cpu = dynamic_cast<const CpuStream*>(&stream_);
    return cpu != nullptr && cpu->dry();
  }

  Algorithm choice(Operation operation, int64_t bytes) {
    const auto [at, is_new] = choices_.try_emplace({operation, bytes});
    if (is_new) {
      at->second = choose(plane().options.links, plane().topology, members(), operation, bytes);
    }
    return at->second;
  }
  Levels levels(Algorithm algorithm) const {
    return Levels(algorithm == Algorithm::kTwoLevel ? chain_ : std::vector<int>{size()}, rank());
  }

  void enqueue(Call call, Algorithmic algorithm) {
    const char* task = to_string(call.operation);
    stream_.host(task, [group = group_, call = std::move(call), algorithm = std::move(algorithm)] {
      perform(*group, call, algorithm);
    });
  }
  void run(Operation operation, int64_t bytes, Algorithmic algorithm) {
    enqueue({name(), operation, sequence_, bytes}, std::move(algorithm));
    sequence_ = (sequence_ + 1) % kSequences;
  }

  /// What every rank says about itself when a group is made.
  struct Claim {
    int color, key, channel;
  };
  std::vector<Claim> exchange_claims(const Claim& mine);
  std::unique_ptr<Communicator> make(std::vector<int> wanted, const std::string& name,
                                     uint32_t channel) const;

  Stream& stream_;
  const std::shared_ptr<const Group> group_;
  const std::vector<int> chain_;
  std::map<std::pair<Operation, int64_t>, Algorithm> choices_;
  uint32_t sequence_ = 0;
};

void HostCommunicator::do_all_gather(const View& in, const View& out) {
  const Algorithm algorithm = choice(Operation::kAllGather, out.bytes());
  run(Operation::kAllGather, out.bytes(), [=, lv = levels(algorithm)](Exchange& exchange) {
    const Blocks blocks{out.numel(), in.numel(), size_of(in.dtype)};
    if (algorithm == Algorithm::kRing) {
      ring_all_gather(exchange, blocks, bytes_of(in), bytes_of(out));
    } else {
      all_gather_by_level(exchange, lv, blocks, bytes_of(in), bytes_of(out));
    }
  });
}

void HostCommunicator::do_all_gather_parts(const View& in, const View& out,
                                           const std::vector<int64_t>& ends) {
  const Algorithm algorithm = choice(Operation::kAllGather, out.bytes());
  run(Operation::kAllGather, out.bytes(), [=, lv = levels(algorithm)](Exchange& exchange) {
    const Blocks blocks = Blocks::at(ends, size_of(in.dtype));
    if (algorithm == Algorithm::kRing) {
      ring_all_gather(exchange, blocks, bytes_of(in), bytes_of(out));
    } else {
      all_gather_by_level(exchange, lv, blocks, bytes_of(in), bytes_of(out));
    }
  });
}

void HostCommunicator::do_coded_reduce_scatter(const View& in, const View& out,
                                               const CodedReduction& how) {
  run(Operation::kReduceScatter, in.bytes(),
      [=, group = group_, lv = Levels(chain_, rank())](Exchange& exchange) {
        zpp::coded_reduce_scatter(exchange, lv, group->plane->topology, group->members, how,
                                  in.as<float>(), out.as<float>(), out.numel());
      });
}

void HostCommunicator::do_reduce_scatter(const View& in, const View& out, ReduceOp op) {
  const Algorithm algorithm = choice(Operation::kReduceScatter, in.bytes());
  const Reduction reduction = reduction_of(op, in.dtype, out.dtype, size());
  run(Operation::kReduceScatter, in.bytes(), [=, lv = levels(algorithm)](Exchange& exchange) {
    const Blocks blocks{in.numel(), out.numel(), size_of(in.dtype)};
    if (algorithm == Algorithm::kRing) {
      ring_reduce_scatter(exchange, blocks, reduction, bytes_of(in), bytes_of(out));
    } else {
      reduce_scatter_by_level(exchange, lv, blocks, reduction, bytes_of(in), bytes_of(out));
    }
  });
}

void HostCommunicator::do_all_reduce(const View& inout, ReduceOp op) {
  const Algorithm algorithm = choice(Operation::kAllReduce, inout.bytes());
  const Reduction reduction = reduction_of(op, inout.dtype, inout.dtype, size());
  run(Operation::kAllReduce, inout.bytes(), [=, lv = levels(algorithm)](Exchange& exchange) {
    std::byte* base = bytes_of(inout);
    if (algorithm == Algorithm::kTree) {
      return tree_all_reduce(exchange, reduction, inout.numel(), base);
    }
    const Blocks blocks = Blocks::cut(inout.numel(), exchange.size(), size_of(inout.dtype));
    std::byte* own = base + blocks.begin(exchange.me()) * blocks.width;
    if (algorithm == Algorithm::kRing) {
      ring_reduce_scatter(exchange, blocks, reduction, base, own);
      exchange.next_phase();
      ring_all_gather(exchange, blocks, own, base);
    } else {
      reduce_scatter_by_level(exchange, lv, blocks, reduction, base, own);
      exchange.next_phase();
      all_gather_by_level(exchange, lv, blocks, own, base);
    }
  });
}

void HostCommunicator::do_broadcast(const View& inout, int root) {
  const Algorithm algorithm = choice(Operation::kBroadcast, inout.bytes());
  run(Operation::kBroadcast, inout.bytes(), [=, lv = levels(algorithm)](Exchange& exchange) {
    const std::span<std::byte> bytes{bytes_of(inout), static_cast<size_t>(inout.bytes())};
    if (algorithm == Algorithm::kRing) return ring_broadcast(exchange, bytes, root);
    if (algorithm == Algorithm::kDirect) return direct_broadcast(exchange, bytes, root);
    tree_broadcast(exchange, lv, bytes, root);
  });
}

void HostCommunicator::do_all_to_all(const View& in, const View& out) {
  const Algorithm algorithm = choice(Operation::kAllToAll, in.bytes());
  run(Operation::kAllToAll, in.bytes(), [=, lv = levels(algorithm)](Exchange& exchange) {
    const Blocks blocks = Blocks::cut(in.numel(), exchange.size(), size_of(in.dtype));
    all_to_all_by_level(exchange, lv, blocks, bytes_of(in), bytes_of(out));
  });
}

void HostCommunicator::do_barrier() {
  run(Operation::kBarrier, 0, [](Exchange& exchange) { tree_barrier(exchange); });
}

std::vector<HostCommunicator::Claim> HostCommunicator::exchange_claims(const Claim& mine) {
  auto claims = std::make_shared<std::vector<Claim>>(static_cast<size_t>(size()), mine);
  const auto bytes = static_cast<int64_t>(sizeof(Claim));
  enqueue({name() + "/split", Operation::kAllGather, sequence_, bytes * size()},
          [=, lv = levels(Algorithm::kDirect)](Exchange& exchange) {
            auto* out = reinterpret_cast<std::byte*>(claims->data());
            const Blocks blocks{exchange.size(), 1, bytes};
            all_gather_by_level(exchange, lv, blocks, out + exchange.me() * bytes, out);
          });
  stream_.synchronize();  // every wait inside has its deadline
  return *claims;
}

std::unique_ptr<Communicator> HostCommunicator::make(std::vector<int> wanted,
                                                     const std::string& name,
                                                     uint32_t channel) const {
  if (channel >= kChannels) {
    throw Error(Code::kFailedPrecondition,
                fmt::format("{}: there are {} communicators already", name, channel));
  }
  plane().next_channel = channel + 1;
  const int world_rank = members()[static_cast<size_t>(rank())];
  const auto me = std::find(wanted.begin(), wanted.end(), world_rank) - wanted.begin();
  return std::make_unique<HostCommunicator>(
      stream_, std::make_shared<const Group>(
                   Group{group_->plane, name, std::move(wanted), static_cast<int>(me), channel}));
}

std::unique_ptr<Communicator> HostCommunicator::split(int color, int key, const std::string& name) {
  if (dry()) {
    throw Error(
        Code::kFailedPrecondition,
        fmt::format("split of {}: a dry run knows of no other rank; use subgroup", this->name()));
  }
  const std::vector<Claim> claims =
      exchange_claims({color, key, static_cast<int>(plane().next_channel)});
  std::vector<int> order(claims.size());
  std::iota(order.begin(), order.end(), 0);
  const auto claim = [&](int i) -> const Claim& { return claims[static_cast<size_t>(i)]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return claim(a).key < claim(b).key; });
  std::vector<int> wanted;
  int channel = 0;  // one that nobody has used yet
  for (int i : order) {
    channel = std::max(channel, claim(i).channel);
    if (claim(i).color == color) wanted.push_back(members()[static_cast<size_t>(i)]);
  }
  return make(std::move(wanted), name, static_cast<uint32_t>(channel));
}

std::unique_ptr<Communicator> HostCommunicator::subgroup(const std::vector<int>& wanted,
                                                         const std::string& name) {
  const int world_rank = members()[static_cast<size_t>(rank())];
  const auto at = std::find(wanted.begin(), wanted.end(), world_rank);
  if (at == wanted.end()) {
    throw Error(Code::kInvalidArgument, fmt::format("subgroup {} of {}: rank {} is not among {}",
                                                    name, this->name(), world_rank, wanted));
  }
  if (dry()) return make(wanted, name, plane().next_channel);
  auto made = split(wanted.front(), static_cast<int>(at - wanted.begin()), name);
  if (made->members() != wanted) {
    throw Error(Code::kInvalidArgument,
                fmt::format("subgroup {} of {}: rank {} means the ranks {} but those who mean the "
                            "same group are {}",
                            name, this->name(), world_rank, wanted, made->members()));
  }
  return made;
}

}  // namespace

std::unique_ptr<Communicator> make_host_communicator(Stream& stream, Transport& transport,
                                                     const Topology& topology,
                                                     const HostCommunicatorOptions& options) {
  if (transport.size() != topology.world()) {
    throw Error(
        Code::kInvalidArgument,
        fmt::format("communicator {}: the transport connects {} ranks but the topology has {}",
                    options.name, transport.size(), topology.world()));
  }
  check(options.links);
  const auto* cpu = dynamic_cast<const CpuStream*>(&stream);
  auto plane = std::make_shared<Plane>(
      Plane{transport, topology, options, cpu != nullptr ? cpu->isa() : best_isa(), {}, 1});
  std::vector<int> members(static_cast<size_t>(topology.world()));
  std::iota(members.begin(), members.end(), 0);
  return std::make_unique<HostCommunicator>(
      stream, std::make_shared<const Group>(
                  Group{std::move(plane), options.name, std::move(members), transport.rank(), 0}));
}

}  // namespace zpp
