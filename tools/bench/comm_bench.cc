#include "tools/bench/comm_bench.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <limits>
#include <thread>

#include "comm/host_communicator.h"
#include "comm/local_transport.h"
#include "comm/rendezvous.h"
#include "comm/ucx_transport.h"
#include "core/error.h"
#include "core/human.h"
#include "tools/bench/coded_bench.h"
#include "tools/bench/collective_timer.h"
#include "tools/bench/quantize_bench.h"
#include "tools/bench/rank_processes.h"

namespace zpp {

namespace {

using Clock = std::chrono::steady_clock;

constexpr Millis kDeadline{60000};
// Of single messages: communicators do not use it.
constexpr uint32_t kChannel = 1010;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Topology topology_of(const CommBench& options) {
  const int sizes[] = {options.ranks / options.nodes, options.ranks};
  return Topology::nested(std::span(sizes).subspan(options.nodes == 1 ? 1 : 0));
}

/// Single messages between rank 0 and the last rank; the others have nothing to do.
class PointToPoint {
 public:
  explicit PointToPoint(Transport& transport)
      : transport_(transport), peer_(transport.rank() == 0 ? transport.size() - 1 : 0) {}

  bool takes_part() const {
    return transport_.rank() == 0 || transport_.rank() + 1 == transport_.size();
  }

  /// There and back, half of it.
  double latency() {
    std::byte byte{};
    double best = std::numeric_limits<double>::infinity();
    for (int run = 0; run < 5; ++run) {
      constexpr int kTrips = 200;
      const Clock::time_point start = Clock::now();
      for (int i = 0; i < kTrips; ++i) {
        if (transport_.rank() == 0) send({&byte, 1});
        receive({&byte, 1});
        if (transport_.rank() != 0) send({&byte, 1});
      }
      best = std::min(best, seconds_since(start) / kTrips / 2);
    }
    return best;
  }

  /// Bytes per second from rank 0 to the peer.
  double one_way(std::span<std::byte> buffer) {
    return rate(buffer, [&] {
      for (int i = 0; i < kInFlight; ++i) {
        if (transport_.rank() == 0) send(buffer);
        if (transport_.rank() != 0) receive(buffer);
      }
    });
  }

  /// Bytes per second in each direction when both send at once.
  double both_ways(std::span<std::byte> out, std::span<std::byte> in) {
    return rate(out, [&] {
      for (int i = 0; i < kInFlight; ++i) {
        const Transport::Ticket going = transport_.send(peer_, envelope(), out);
        const Transport::Ticket coming = transport_.receive(peer_, envelope(), in);
        transport_.wait(coming, kDeadline);
        transport_.wait(going, kDeadline);
      }
    });
  }

 private:
  static constexpr int kInFlight = 4, kRuns = 8;

  static Envelope envelope() { return {.channel = kChannel}; }
  void send(std::span<const std::byte> bytes) {
    transport_.wait(transport_.send(peer_, envelope(), bytes), kDeadline);
  }
  void receive(std::span<std::byte> bytes) {
    transport_.wait(transport_.receive(peer_, envelope(), bytes), kDeadline);
  }
  template <class Transfer>
  double rate(std::span<const std::byte> bytes, const Transfer& transfer) {
    double best = std::numeric_limits<double>::infinity();
    std::byte done{};
    for (int run = 0; run < kRuns; ++run) {
      const Clock::time_point start = Clock::now();
      transfer();
      if (transport_.rank() == 0) receive({&done, 1});
      if (transport_.rank() != 0) send({&done, 1});
      best = std::min(best, seconds_since(start));
    }
    return static_cast<double>(bytes.size()) * kInFlight / best;
  }

  Transport& transport_;
  const int peer_;
};

/// One rank's part of the benchmark.
class RankBench {
 public:
  RankBench(const CommBench& options, const Topology& topology, Transport& transport,
            const Print& print)
      : options_(options),
        topology_(topology),
        transport_(transport),
        print_(print),
        runtime_(runtime_options(options.ranks)),
        largest_(*std::max_element(options.bytes.begin(), options.bytes.end())),
        a_(runtime_.tensor({round_up(largest_)}, DType::kF32)),
        b_(runtime_.tensor({round_up(largest_)}, DType::kF32)) {
    for (const Tensor& t : {a_, b_}) std::fill_n(t.view().as<float>(), t.numel(), 1.0f);
  }

  void run() {
    if (options_.quantized) codecs();
    single_messages();
    HostCommunicatorOptions options;
    options.deadline = kDeadline;
    options.links = measure_links(transport_, topology_, kDeadline);
    options.links.force = options_.algorithm;
    links(options.links);
    Ledger ledger(topology_.levels());
    options.ledger = &ledger;
    const std::unique_ptr<Communicator> world =
        make_host_communicator(runtime_.compute(), transport_, topology_, options);
    if (options_.quantized) {
      bench_coded(runtime_, *world, topology_, ledger,
                  {.bytes = options_.bytes, .seconds = options_.seconds},
                  [this](const std::string& line) { say(line); });
    } else {
      collectives(*world);
    }
    world->barrier().synchronize();
  }

 private:
  void collectives(Communicator& world) {
    say("");
    say(fmt::format("{:<15} {:>10} {:>11} {:>9} {:>9} {:>9} {:>9}", "collective", "buffer", "time",
                    "alg GB/s", "bus GB/s", "alg/raw", "bus/raw"));
    for (const int64_t bytes : options_.bytes) {
      for (const Operation operation : {Operation::kAllGather, Operation::kReduceScatter,
                                        Operation::kAllReduce, Operation::kAllToAll}) {
        collective(world, operation, bytes);
      }
    }
    say("alg: buffer / time; bus: bytes that each rank sends / time; raw: one way at 64 MiB or the "
        "largest buffer");
  }

  static Runtime::Options runtime_options(int ranks) {
    Runtime::Options options;
    options.threads = std::max(1, available_cores() / ranks);
    return options;
  }

  void say(const std::string& line) {
    if (transport_.rank() == 0) print_(line);
  }

  /// Elements of a buffer of `bytes`, the same number for each rank.
  int64_t round_up(int64_t bytes) const {
    const int64_t part = (bytes / 4 + options_.ranks - 1) / options_.ranks;
    return std::max<int64_t>(1, part) * options_.ranks;
  }

  static std::span<std::byte> bytes_of(const Tensor& tensor) {
    return {static_cast<std::byte*>(tensor.view().data),
            static_cast<size_t>(tensor.view().bytes())};
  }

  /// On one rank alone: the others wait for its messages.
  void codecs() {
    if (transport_.rank() != 0) return;
    say(fmt::format("{:<26}{:>6}{:>11}{:>9}{:>10}", "coding", "dtype", "ms", "GB/s", "% memcpy"));
    bench_quantize(runtime_, {DType::kF32, DType::kBF16}, options_.seconds / 4, print_, largest_);
    say("");
  }

  void single_messages() {
    if (options_.ranks == 1) return;
    PointToPoint pair(transport_);
    if (!pair.takes_part()) return;
    const double latency = pair.latency();
    raw_ = pair.one_way(bytes_of(a_));
    const double both = pair.both_ways(bytes_of(a_), bytes_of(b_));
    say(fmt::format(
        "single messages between rank 0 and rank {}: latency {:.2f} us, one way {:.2f} "
        "GB/s, both ways at once {:.2f} GB/s each (messages of {})",
        options_.ranks - 1, latency * 1e6, raw_ / 1e9, both / 1e9, human_bytes(a_.view().bytes())));
  }

  void links(const LinkModel& model) {
    for (int level = 1; level <= topology_.levels(); ++level) {
      const LinkCost cost = model.cost(level);
      say(fmt::format("link class {:<8} latency {:>8.2f} us   bandwidth {:>6.2f} GB/s",
                      topology_.level_name(level), cost.latency_s * 1e6, cost.bytes_per_s / 1e9));
    }
  }

  Communicator::Work start(Communicator& world, Operation operation, const View& whole,
                           const View& other) {
    const int64_t part = whole.numel() / options_.ranks;
    switch (operation) {
      case Operation::kAllGather:
        return world.all_gather(whole.slice(0, world.rank() * part, (world.rank() + 1) * part),
                                whole);
      case Operation::kReduceScatter:
        return world.reduce_scatter(
            whole, whole.slice(0, world.rank() * part, (world.rank() + 1) * part), ReduceOp::kAvg);
      case Operation::kAllReduce:
        return world.all_reduce(whole, ReduceOp::kAvg);
      default:
        return world.all_to_all(whole, other);
    }
  }

  void collective(Communicator& world, Operation operation, int64_t bytes) {
    const View whole = a_.view().slice(0, 0, round_up(bytes)),
               other = b_.view().slice(0, 0, round_up(bytes));
    const double best =
        CollectiveTimer(runtime_, world)
            .best_seconds([&] { return start(world, operation, whole, other).done(); },
                          options_.seconds);
    report(operation, static_cast<double>(whole.bytes()), best);
  }

  void report(Operation operation, double bytes, double seconds) {
    const double ranks = options_.ranks;
    const double trips = operation == Operation::kAllReduce ? 2 : 1;
    const double algorithm = bytes / seconds, bus = trips * algorithm * (ranks - 1) / ranks;
    const auto share = [this](double rate) {
      return raw_ > 0 ? fmt::format("{:.0f} %", 100 * rate / raw_) : std::string("-");
    };
    say(fmt::format("{:<15} {:>10} {:>8.1f} us {:>9.2f} {:>9.2f} {:>9} {:>9}", to_string(operation),
                    human_bytes(static_cast<int64_t>(bytes)), seconds * 1e6, algorithm / 1e9,
                    bus / 1e9, share(algorithm), share(bus)));
  }

  const CommBench& options_;
  const Topology& topology_;
  Transport& transport_;
  const Print& print_;
  Runtime runtime_;
  const int64_t largest_;
  const Tensor a_, b_;
  double raw_ = 0;  // bytes per second
};

void run_threads(const CommBench& options, const Print& print) {
  const Topology topology = topology_of(options);
  LocalNetwork network(topology);
  std::vector<std::thread> threads;
  std::vector<std::unique_ptr<Transport>> transports;
  std::vector<std::exception_ptr> errors(static_cast<size_t>(options.ranks));
  for (int rank = 0; rank < options.ranks; ++rank) transports.push_back(network.connect(rank, 0));
  for (int rank = 0; rank < options.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto at = static_cast<size_t>(rank);
      try {
        RankBench(options, topology, *transports[at], print).run();
      } catch (const std::exception& error) {
        errors[at] = std::current_exception();
        transports[at]->abort(Error(Code::kInternal, error.what()));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

void run_processes(const CommBench& options, const Print& print) {
  std::string directory = (std::filesystem::temp_directory_path() / "zpp-bench-XXXXXX").string();
  if (::mkdtemp(directory.data()) == nullptr) {
    throw Error(Code::kIo, fmt::format("cannot make the directory {}", directory));
  }
  struct Remove {
    std::string path;
    ~Remove() {
      std::error_code ignored;
      std::filesystem::remove_all(path, ignored);
    }
  } const remove{directory};
  run_rank_processes(options.ranks, [&](int rank) {
    UcxOptions ucx;
    ucx.interfaces = options.interfaces;
    if (options.transport == "ucx-tcp") ucx.transports = "tcp";
    const std::unique_ptr<Store> store = make_file_store(directory, "bench");
    const int nested[] = {options.ranks};
    const Rendezvous place = meet(*store, rank, options.ranks, nested, kDeadline);
    const std::unique_ptr<Transport> transport = make_ucx_transport(*store, place, 0, ucx);
    RankBench(options, topology_of(options), *transport, print).run();
  });
}

}  // namespace

void bench_comm(const CommBench& options, const Print& print) {
  if (options.ranks < 1 || options.nodes < 1 || options.ranks % options.nodes != 0) {
    throw Error(Code::kInvalidArgument,
                fmt::format("comm: {} ranks cannot be on {} nodes of equal size", options.ranks,
                            options.nodes));
  }
  if (options.bytes.empty() || *std::min_element(options.bytes.begin(), options.bytes.end()) < 1) {
    throw Error(Code::kInvalidArgument, "comm: buffers must have at least 1 byte");
  }
  print(fmt::format("{} ranks on {} node{}, transport {}, {} core{}", options.ranks, options.nodes,
                    options.nodes > 1 ? "s (pretended)" : "", options.transport, available_cores(),
                    available_cores() > 1 ? "s" : ""));
  if (options.transport == "local") {
    run_threads(options, print);
  } else if (options.transport == "ucx" || options.transport == "ucx-tcp") {
    run_processes(options, print);
  } else {
    throw Error(
        Code::kInvalidArgument,
        fmt::format("comm: '{}' is no transport; local, ucx and ucx-tcp are", options.transport));
  }
}

}  // namespace zpp
