#include "core/workers.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "core/available_cores.h"
#include "core/error.h"
#include "core/spin.h"

namespace zpp {

namespace {

using Part = std::function<void(int64_t)>;

// Longer than the gap between two kernels of one stream, shorter than a time slice by far.
constexpr std::chrono::microseconds kSpin{20};

constexpr size_t kCacheLine = 64;

/// Keeps the exception of the lowest part, so that what is reported does not depend on timing.
class FirstError {
 public:
  void run(const Part& fn, int64_t part) {
    try {
      fn(part);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!error_ || part < part_) {
        error_ = std::current_exception();
        part_ = part;
      }
    }
  }
  void rethrow() {
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
  int64_t part_ = 0;
};

}  // namespace

// The caller never waits for a helper to wake up, only for helpers that have joined: on a loaded
// machine it does all parts itself while the others are still asleep. `gate` makes that safe. It
// counts the helpers inside and has one bit that says whether a job is open, so that joining and
// learning whether there is something to join is one atomic step; the fields of the job change only
// while the gate is closed and empty.
struct Workers::Impl {
  static constexpr uint32_t kOpen = 1u << 31;

  explicit Impl(int n) : threads(n) {
    if (n <= available_cores()) spin = kSpin;
    helpers.reserve(static_cast<size_t>(n - 1));
    try {
      for (int i = 1; i < n; ++i) helpers.emplace_back([this] { help(); });
    } catch (const std::system_error& error) {
      const size_t started = helpers.size() + 1;
      end();
      throw Error(Code::kFailedPrecondition,
                  fmt::format("workers: only {} of {} threads could be started ({}); ask for fewer "
                              "(run.threads) or raise the limit",
                              started, n, error.code().message()));
    }
  }

  ~Impl() { end(); }

  void end() {
    stop.store(true, std::memory_order_relaxed);
    epoch.fetch_add(1);
    epoch.notify_all();
    for (std::thread& helper : helpers) helper.join();
    helpers.clear();
  }

  void help() {
    uint32_t seen = 0;
    while (true) {
      const auto changed = [&] { return epoch.load(std::memory_order_acquire) != seen; };
      if (!spin_until(changed, spin)) epoch.wait(seen);
      seen = epoch.load(std::memory_order_acquire);
      if (stop.load(std::memory_order_relaxed)) return;
      if (gate.fetch_add(1, std::memory_order_acq_rel) & kOpen) work();
      if (gate.fetch_sub(1, std::memory_order_acq_rel) == 1) gate.notify_one();
    }
  }

  void work() {
    for (int64_t part; (part = next.fetch_add(1, std::memory_order_relaxed)) < parts;) {
      errors.run(*fn, part);
    }
  }

  void run(int64_t n, const Part& f) {
    fn = &f;
    parts = n;
    next.store(0, std::memory_order_relaxed);
    gate.fetch_or(kOpen, std::memory_order_release);
    epoch.fetch_add(1);
    wake(std::min<int64_t>(n, threads) - 1);
    work();
    gate.fetch_and(~kOpen, std::memory_order_acq_rel);
    const auto empty = [this] { return gate.load(std::memory_order_acquire) == 0; };
    if (spin_until(empty, spin)) return;
    for (uint32_t inside; (inside = gate.load(std::memory_order_acquire)) != 0;) gate.wait(inside);
  }

  void wake(int64_t count) {
    if (count == threads - 1) {
      epoch.notify_all();
    } else {
      for (int64_t i = 0; i < count; ++i) epoch.notify_one();
    }
  }

  const int threads;
  std::chrono::nanoseconds spin{0};
  std::vector<std::thread> helpers;
  std::atomic<bool> stop{false};
  std::atomic<bool> busy{false};

  const Part* fn = nullptr;
  int64_t parts = 0;
  FirstError errors;

  alignas(kCacheLine) std::atomic<uint32_t> epoch{0};  // grows with every job; helpers sleep on it
  alignas(kCacheLine) std::atomic<uint32_t> gate{0};
  alignas(kCacheLine) std::atomic<int64_t> next{0};
};

Workers::Workers(int threads) {
  if (threads < 1) {
    throw Error(Code::kInvalidArgument,
                fmt::format("workers: at least 1 thread is needed but {} were asked for", threads));
  }
  impl_ = std::make_unique<Impl>(threads);
}

Workers::~Workers() = default;

int Workers::threads() const noexcept { return impl_->threads; }

std::chrono::nanoseconds Workers::spin() const noexcept { return impl_->spin; }

void Workers::run(int64_t parts, const Part& fn) {
  if (parts <= 0) return;
  if (parts == 1) return fn(0);
  if (impl_->threads == 1 || impl_->busy.exchange(true, std::memory_order_acquire)) {
    FirstError errors;
    for (int64_t part = 0; part < parts; ++part) errors.run(fn, part);
    return errors.rethrow();
  }
  impl_->run(parts, fn);
  FirstError& errors = impl_->errors;
  // The team is given back only after the error has been taken out of it.
  struct GiveBack {
    std::atomic<bool>& busy;
    ~GiveBack() { busy.store(false, std::memory_order_release); }
  } give_back{impl_->busy};
  errors.rethrow();
}

void Workers::parallel_for(int64_t n, int64_t grain,
                           const std::function<void(int64_t begin, int64_t end)>& fn) {
  if (n <= 0) return;
  const int64_t parts = std::clamp<int64_t>(n / std::max<int64_t>(grain, 1), 1, impl_->threads);
  if (parts == 1) return fn(0, n);
  struct Split {
    const std::function<void(int64_t, int64_t)>& fn;
    int64_t size, longer;  // the first `longer` ranges have one element more
    int64_t begin(int64_t part) const { return part * size + std::min(part, longer); }
  };
  // One captured reference fits into std::function without an allocation.
  const Split split{fn, n / parts, n % parts};
  run(parts, [&split](int64_t part) { split.fn(split.begin(part), split.begin(part + 1)); });
}

}  // namespace zpp
