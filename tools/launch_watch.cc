#include "tools/launch_watch.h"

#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "core/error.h"

namespace zpp {
namespace {

constexpr char kFailed[] = "launchers/failed";
constexpr Millis kListen{200}, kTell{2000};

std::string done_key(int node) { return fmt::format("launchers/done/{}", node); }
std::string left_key(int node) { return fmt::format("launchers/left/{}", node); }

/// The value, if it comes in time.
std::optional<std::string> try_get(Store& store, const std::string& key, Millis timeout) {
  try {
    return store.get(key, timeout);
  } catch (const Error& error) {
    if (error.code() == Code::kTimeout) return std::nullopt;
    throw;
  }
}

}  // namespace

LaunchWatch::LaunchWatch(Connect connect, int node, int nodes)
    : connect_(std::move(connect)), node_(node), nodes_(nodes), thread_([this] { listen(); }) {}

LaunchWatch::~LaunchWatch() { stop_listening(); }

void LaunchWatch::stop_listening() {
  ended_ = true;
  if (thread_.joinable()) thread_.join();
}

std::optional<std::string> LaunchWatch::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void LaunchWatch::listen() {
  std::unique_ptr<Store> store;
  while (!ended_) {
    try {
      if (!store) store = connect_(kListen);
      connected_ = true;
      if (const auto text = try_get(*store, kFailed, kListen)) {
        const std::lock_guard lock(mutex_);
        failure_ = *text;
        return;
      }
    } catch (const std::exception&) {
      // Not there yet: the first machine may start late. Gone: the ranks find out about each other.
      if (connected_) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }
}

void LaunchWatch::tell_failure(const std::string& text) noexcept {
  try {
    connect_(kTell)->set(kFailed, text);
  } catch (const std::exception&) {
    // The others notice by their ranks.
  }
}

std::optional<std::string> LaunchWatch::finish(Millis timeout) noexcept {
  std::optional<std::string> failed;
  try {
    // Machine 0 may start last.
    const std::unique_ptr<Store> store = connect_(connected_ ? kTell : timeout);
    failed = wait_for_all(*store, Deadline(timeout));
    stop_listening();
    // The store may be node 0's, which therefore leaves last.
    if (node_ != 0) store->set(left_key(node_), "");
    const Deadline soon(kTell);
    for (int node = 1; node_ == 0 && node < nodes_; ++node) {
      try_get(*store, left_key(node), soon.left());
    }
  } catch (const std::exception&) {
    // Gone with a launcher that did not wait any longer.
  }
  return failed;
}

std::optional<std::string> LaunchWatch::wait_for_all(Store& store, const Deadline& deadline) {
  store.set(done_key(node_), "");
  for (int node = 0; node < nodes_; ++node) {
    while (!try_get(store, done_key(node), Millis(100))) {
      if (const auto text = failure()) return text;
      if (deadline.passed()) return fmt::format("the launcher of node {} is not done", node);
    }
  }
  // Failure is told before the end.
  return try_get(store, kFailed, Millis(1));
}

}  // namespace zpp
