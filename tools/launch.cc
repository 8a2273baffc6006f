#include "tools/launch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "comm/store.h"
#include "core/available_cores.h"
#include "core/error.h"
#include "tools/job_store.h"
#include "tools/launch_process.h"
#include "tools/launch_supervisor.h"
#include "tools/launch_watch.h"

namespace zpp {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

/// Or is one of the launchers of such a job.
bool starts_hosts(const LaunchRequest& r) {
  return !r.config.hosts.empty() && r.master_address.empty();
}

int local_ranks(const LaunchRequest& r) {
  // Pretended nodes are this machine's.
  return static_cast<int>(r.config.ranks_per_node * r.config.nodes);
}

class Launcher {
 public:
  Launcher(const LaunchRequest& request, Log& log) : r_(request), log_(log) {
    // nested_sizes() tells before anything is started what could not be a topology.
    if (r_.control_fd < 0) nested_sizes(r_.config, world());
  }

  ExitCode run() {
    for (int attempt = r_.attempt;; ++attempt) {
      const SupervisorResult result = run_attempt(attempt);
      if (result.failure.empty()) return result.code;
      log_.error(result.failure);
      // Bad input stays bad.
      const bool again = attempt - r_.attempt < r_.config.max_restarts &&
                         result.code != kExitBadInput && !result.stop_requested;
      if (!again)
        return r_.control_fd < 0 && result.code == kExitPeerLost ? kExitFailed : result.code;
      log_.warn(fmt::format("starting the job again from its beginning, restart {} of {}",
                            attempt + 1 - r_.attempt, r_.config.max_restarts));
    }
  }

 private:
  bool over_ssh() const { return starts_hosts(r_); }
  int world() const { return launch_world(r_); }
  /// On one machine that is the loopback.
  std::string master_address() const {
    if (!r_.master_address.empty()) return r_.master_address;
    if (!over_ssh()) return "127.0.0.1";
    return r_.config.master_address.empty() ? host_name() : r_.config.master_address;
  }

  /// A job of several launchers that people start keeps its store and token for all attempts, because
  /// nobody could tell them new ones; the attempt's number in its keys keeps those apart.
  void open_store() {
    const bool given = !r_.token.empty();
    const bool keeps = r_.control_fd < 0 && r_.node == 0;
    if (!given || token_.empty()) token_ = given ? r_.token : make_job_token();
    port_ = r_.master_port;
    if (!keeps || !r_.config.rendezvous_dir.empty() || (server_ && given)) return;
    server_.reset();
    const int port = port_ != 0 ? port_ : static_cast<int>(r_.config.master_port);
    server_ = std::make_unique<TcpStoreServer>(
        static_cast<uint16_t>(port), token_,
        [this](const std::string& text) { log_.warn("rendezvous: " + text); });
    port_ = server_->port();
  }

  SupervisorResult run_attempt(int attempt) {
    open_store();
    SupervisorOptions options;
    options.settle = r_.settle;
    options.grace = r_.grace;
    options.control_fd = r_.control_fd;
    if (over_ssh()) return supervise(hosts(attempt), signals_, options, log_);
    if (r_.nodes == 1) return supervise(ranks(attempt), signals_, options, log_);

    const StorePlace place = store_place(attempt);
    LaunchWatch watch([place](Millis timeout) { return connect_store(place, timeout); }, r_.node,
                      r_.nodes);
    options.failed_elsewhere = [&watch] { return watch.failure(); };
    options.on_failure = [&watch](const std::string& text) { watch.tell_failure(text); };
    SupervisorResult result = supervise(ranks(attempt), signals_, options, log_);
    // Whoever restarts must know that the others do not take the job for done.
    const bool failed = !result.failure.empty();
    const auto elsewhere = watch.finish(failed ? r_.settle + r_.grace : r_.config.timeout());
    if (!failed && elsewhere) {
      result.failure = *elsewhere;
      result.code = kExitPeerLost;
    }
    return result;
  }

  StorePlace store_place(int attempt) const {
    return {.directory = r_.config.rendezvous_dir,
            // The server may be this process's own.
            .address = server_ ? "127.0.0.1" : master_address(),
            .port = port_,
            .token = token_,
            .attempt = attempt};
  }

  std::vector<Supervised> ranks(int attempt) const {
    const StorePlace store = store_place(attempt);
    const std::vector<int> cores = affinity_cores();
    const int count = local_ranks(r_);
    const int64_t threads = r_.threads > 0 ? r_.threads : std::max(1, available_cores() / count);
    std::vector<Supervised> all;
    for (int local = 0; local < count; ++local) {
      const int rank = r_.node * count + local;
      Supervised s;
      s.process.name = fmt::format("rank {}", rank);
      s.process.program = r_.program;
      s.process.arguments = r_.arguments;
      s.process.environment = {fmt::format("RANK={}", rank),
                               fmt::format("WORLD_SIZE={}", world()),
                               fmt::format("LOCAL_RANK={}", local),
                               fmt::format("LOCAL_WORLD_SIZE={}", count),
                               "MASTER_ADDR=" + store.address,
                               fmt::format("MASTER_PORT={}", store.port),
                               "ZPP_JOB_TOKEN=" + token_,
                               "ZPP_LAUNCHED=1",
                               fmt::format("ZPP_ATTEMPT={}", attempt),
                               fmt::format("ZPP_THREADS={}", threads),
                               "TORCHELASTIC_USE_AGENT_STORE",
                               r_.show_progress && rank == 0 ? "ZPP_PROGRESS=1" : "ZPP_PROGRESS"};
      if (r_.config.pin) s.process.cores = share(cores, local, count);
      s.description = fmt::format("rank {} (host {}, pid {{}})", rank, host_name());
      if (!r_.log_dir.empty()) s.log_file = fmt::format("{}/rank-{}.log", r_.log_dir, rank);
      s.show_raw = rank == 0;
      all.push_back(std::move(s));
    }
    return all;
  }

  /// Part `i` of `n` of the cores; with fewer cores than parts several share one.
  static std::vector<int> share(const std::vector<int>& cores, int i, int n) {
    const auto size = static_cast<int64_t>(cores.size());
    if (size == 0) return {};
    const int64_t begin = size * i / n;
    const int64_t end = std::max(begin + 1, size * (i + 1) / n);
    return {cores.begin() + begin, cores.begin() + end};
  }

  std::vector<Supervised> hosts(int attempt) const {
    std::vector<Supervised> all;
    const auto count = r_.config.hosts.size();
    for (size_t node = 0; node < count; ++node) {
      const std::string& host = r_.config.hosts[node];
      std::vector<std::string> command = r_.arguments;
      command.front() = r_.program;
      command.insert(command.end(),
                     {"--set", "launch.max_restarts=0", "--nnodes", std::to_string(count),
                      "--node-rank", std::to_string(node), "--master",
                      fmt::format("{}:{}", master_address(), port_), "--controlled"});
      std::string line = "cd " + shell_quote(std::filesystem::current_path().string()) + " && exec";
      for (const std::string& word : command) line += " " + shell_quote(word);
      Supervised s;
      s.process.name = host;
      s.process.program = r_.config.ssh.front();
      s.process.arguments = r_.config.ssh;
      s.process.arguments.insert(s.process.arguments.end(), {host, line});
      s.process.has_input = true;
      s.process.first_input = fmt::format("{} {}\n", token_, attempt);
      s.description = fmt::format("host {} ({} with pid {{}})", host, r_.config.ssh.front());
      s.show_raw = node == 0;
      s.remote = true;
      all.push_back(std::move(s));
    }
    return all;
  }

  const LaunchRequest& r_;
  Log& log_;
  SignalReader signals_;  // before the store's thread
  std::string token_;
  int port_ = 0;
  std::unique_ptr<TcpStoreServer> server_;
};

}  // namespace

int launch_world(const LaunchRequest& request) {
  return starts_hosts(request) ? static_cast<int>(request.config.world())
                               : local_ranks(request) * request.nodes;
}

ExitCode launch(const LaunchRequest& request, Log& log) { return Launcher(request, log).run(); }

ControlLine read_control_line(int fd) {
  std::string line;
  for (char c = 0; ::read(fd, &c, 1) == 1 && c != '\n' && line.size() < 4096;) line += c;
  const size_t space = line.find(' ');
  if (space == std::string::npos) {
    throw Error(Code::kInvalidArgument,
                "--controlled: expected the job's token in the standard input");
  }
  return {line.substr(0, space), std::atoi(line.c_str() + space)};
}

std::string shell_quote(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

}  // namespace zpp
