#include "comm/rendezvous.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <filesystem>

#include "comm/deadline.h"
#include "core/error.h"
#include "core/files.h"

namespace zpp {

namespace {

// How many missing ranks an error lists.
constexpr size_t kMaxListed = 16;

/// What ranks must have in common to share memory and process numbers: the running kernel and its
/// namespaces.
std::string machine_identity() {
  std::string identity;
  for (const char* file : {"/proc/sys/kernel/random/boot_id", "/proc/sys/kernel/hostname"}) {
    std::error_code missing;
    if (std::filesystem::exists(file, missing)) identity += read_file(file);
  }
  for (const char* name : {"ipc", "pid"}) {
    std::error_code missing;
    identity +=
        std::filesystem::read_symlink(fmt::format("/proc/self/ns/{}", name), missing).string();
  }
  std::erase(identity, '\n');
  return identity;
}

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = "";
  ::gethostname(name, sizeof name - 1);
  return name[0] == '\0' ? "localhost" : name;
}

/// What each rank publishes: "pid\nhost\nidentity".
struct Card {
  int64_t pid = 0;
  std::string host, identity;

  std::string text() const { return fmt::format("{}\n{}\n{}", pid, host, identity); }
  static Card parse(const std::string& text) {
    const size_t first = text.find('\n'), second = text.find('\n', first + 1);
    if (second == std::string::npos) {
      throw Error(Code::kInternal, fmt::format("rendezvous: cannot read '{}'", text));
    }
    return {std::stoll(text.substr(0, first)), text.substr(first + 1, second - first - 1),
            text.substr(second + 1)};
  }
};

std::string key_of(int rank) { return fmt::format("rendezvous/{}", rank); }

/// The ranks from `first` on that have not come.
[[noreturn]] void report_missing(Store& store, int first, int world, Millis timeout) {
  std::string missing = fmt::format("{}", first);
  size_t count = 1;
  for (int rank = first + 1; rank < world; ++rank) {
    try {
      store.get(key_of(rank), Millis(0));
    } catch (const Error& error) {
      if (error.code() != Code::kTimeout) throw;
      if (++count <= kMaxListed) missing += fmt::format(", {}", rank);
    }
  }
  if (count > kMaxListed) missing += ", ...";
  throw Error(Code::kTimeout,
              fmt::format("rendezvous: {} of {} ranks did not come within {:.1f} s: rank{} {}; see "
                          "what {} last said, or whether {} started at all",
                          count, world, std::chrono::duration<double>(timeout).count(),
                          count > 1 ? "s" : "", missing, count > 1 ? "they" : "it",
                          count > 1 ? "they" : "it"));
}

/// The hosts' own names, and a number after those that several machines have.
std::vector<std::string> distinct_names(const std::vector<Card>& cards) {
  std::vector<std::string> names;
  for (const Card& card : cards) {
    std::vector<std::string> machines;  // of that name, in rank order
    for (const Card& other : cards) {
      const bool known =
          std::find(machines.begin(), machines.end(), other.identity) != machines.end();
      if (other.host == card.host && !known) machines.push_back(other.identity);
    }
    const auto place = std::find(machines.begin(), machines.end(), card.identity);
    names.push_back(machines.size() == 1
                        ? card.host
                        : fmt::format("{}#{}", card.host, place - machines.begin() + 1));
  }
  return names;
}

}  // namespace

std::string Rendezvous::describe(int other) const {
  const auto at = static_cast<size_t>(other);
  return fmt::format("rank {} (host {}, pid {})", other, hosts.at(at), pids.at(at));
}

Rendezvous meet(Store& store, int rank, int world, std::span<const int> nested, Millis timeout) {
  if (world < 1 || rank < 0 || rank >= world) {
    throw Error(Code::kInvalidArgument,
                fmt::format("rendezvous: there is no rank {} of {}", rank, world));
  }
  if (!nested.empty() && nested.back() != world) {
    throw Error(Code::kInvalidArgument,
                fmt::format("rendezvous: groups up to {} ranks were asked for but there are {}",
                            nested.back(), world));
  }
  const Deadline deadline(timeout);
  const Card own{::getpid(), host_name(), machine_identity()};
  store.set(key_of(rank), own.text());
  std::vector<Card> cards;
  for (int other = 0; other < world; ++other) {
    try {
      cards.push_back(Card::parse(store.get(key_of(other), deadline.left())));
    } catch (const Error& error) {
      if (error.code() != Code::kTimeout) throw;
      report_missing(store, other, world, timeout);
    }
  }
  const Card& seen = cards[static_cast<size_t>(rank)];
  if (seen.text() != own.text()) {
    throw Error(
        Code::kInvalidArgument,
        fmt::format("rendezvous: two processes came as rank {}: pid {} on {} and pid {} on {}",
                    rank, own.pid, own.host, seen.pid, seen.host));
  }
  std::vector<std::string> hosts = distinct_names(cards);
  std::vector<int64_t> pids;
  for (const Card& card : cards) pids.push_back(card.pid);
  Topology topology = nested.empty() ? Topology::from_hosts(hosts) : Topology::nested(nested);
  return {rank, std::move(hosts), std::move(pids), std::move(topology)};
}

std::vector<std::string> exchange_texts(Store& store, const Rendezvous& place,
                                        const std::string& name, const std::string& mine,
                                        Millis timeout) {
  const Deadline deadline(timeout);
  const auto key = [&name](int rank) { return fmt::format("{}/{}", name, rank); };
  store.set(key(place.rank), mine);
  std::vector<std::string> all;
  for (int rank = 0; rank < place.world(); ++rank) {
    try {
      all.push_back(store.get(key(rank), deadline.left()));
    } catch (const Error& error) {
      if (error.code() != Code::kTimeout) throw;
      throw Error(
          Code::kTimeout,
          fmt::format("{} waiting for {} to set '{}': nothing for {:.1f} s; see what it last "
                      "said",
                      place.describe(place.rank), place.describe(rank), key(rank),
                      std::chrono::duration<double>(timeout).count()));
    }
  }
  return all;
}

}  // namespace zpp
