#include "core/cpu_stream.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "core/rng.h"
#include "core/spin.h"

namespace zpp {

namespace {

/// A stream's error as plain data: each thread that meets it throws an Error of its own.
struct Failure {
  Code code;
  std::string text;
  std::string where;

  [[noreturn]] void raise() const {
    const size_t colon = where.rfind(':');
    throw Error(code, text, where.substr(0, colon).c_str(), std::stoi(where.substr(colon + 1)));
  }
};
using FailurePtr = std::shared_ptr<const Failure>;

FailurePtr make_failure(const Error& error, std::string_view prefix = {}) {
  return std::make_shared<Failure>(
      Failure{error.code(), fmt::format("{}{}", prefix, error.what()), error.where()});
}

/// Must be called while an exception is being handled.
FailurePtr current_failure(const std::string& stream, std::string_view task) {
  const std::string prefix = fmt::format("stream {}, task {}: ", stream, task);
  try {
    throw;
  } catch (const Error& error) {
    return make_failure(error, prefix);
  } catch (const std::exception& error) {
    return make_failure(Error(Code::kInternal, error.what()), prefix);
  } catch (...) {
    return make_failure(Error(Code::kInternal, "threw something that is no std::exception"),
                        prefix);
  }
}

/// What an event and the thread that completes it share.
class Completion final : public Event::State {
 public:
  explicit Completion(std::thread::id completer) : completer_(completer) {}

  bool ready() const override { return done_.load(std::memory_order_acquire); }

  bool wait(Millis timeout) const override {
    constexpr Millis kForever = std::chrono::hours(24 * 365);  // and more would overflow the clock
    if (!ready()) {
      if (std::this_thread::get_id() == completer_) {
        throw Error(Code::kFailedPrecondition,
                    "a task waits for its own stream to get past that task, which cannot happen");
      }
      const auto is_done = [this] { return ready(); };
      std::unique_lock lock(mutex_);
      if (timeout >= kForever) {
        changed_.wait(lock, is_done);
      } else if (!changed_.wait_for(lock, timeout, is_done)) {
        return false;
      }
    }
    if (failure_) failure_->raise();
    return true;
  }

  void complete(FailurePtr failure) {
    {
      const std::lock_guard lock(mutex_);
      failure_ = std::move(failure);
      done_.store(true, std::memory_order_release);
    }
    changed_.notify_all();
  }

  std::thread::id completer() const { return completer_; }

 private:
  const std::thread::id completer_;
  std::atomic<bool> done_{false};
  FailurePtr failure_;  // written once, before done_
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
};

struct Launch {
  const char* name;
  Work work;
  std::function<void(Workers&)> fn;
};
struct Host {
  std::string name;
  std::function<void()> fn;
};
struct Observe {
  TaskObserver* observer;
};
using Task =
    std::variant<std::monostate, Launch, Host, Event, std::shared_ptr<Completion>, Observe>;

}  // namespace

const char* to_string(Isa isa) { return isa == Isa::kAvx512 ? "avx512" : "avx2"; }

Isa best_isa() {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
    throw Error(Code::kFailedPrecondition,
                "this program needs a CPU with AVX2 and FMA (x86-64-v3); this one has not both");
  }
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512cd");
  return avx512 ? Isa::kAvx512 : Isa::kAvx2;
}

struct CpuStream::Queue {
  Queue(Workers& w, const Options& o) : workers(w), options(o), thread([this] { loop(); }) {
    constexpr size_t kMaxThreadName = 15;
    pthread_setname_np(thread.native_handle(), o.name.substr(0, kMaxThreadName).c_str());
  }

  ~Queue() {
    {
      const std::lock_guard lock(mutex);
      closing = true;
      news.store(true, std::memory_order_release);
    }
    changed.notify_one();
    thread.join();
  }

  void push(Task task) {
    {
      const std::lock_guard lock(mutex);
      tasks.push_back(std::move(task));
      news.store(true, std::memory_order_release);
    }
    changed.notify_one();
  }

  /// Waits for tasks and takes all there are; none when the stream is closing.
  std::vector<Task> take() {
    const auto has_news = [this] { return news.load(std::memory_order_acquire); };
    spin_until(has_news, workers.spin());
    std::unique_lock lock(mutex);
    changed.wait(lock, has_news);
    news.store(closing, std::memory_order_relaxed);
    return std::exchange(tasks, {});
  }

  void loop() {
    for (std::vector<Task> batch = take(); !batch.empty(); batch = take()) {
      for (Task& task : batch) {
        std::visit([this](auto& t) { execute(t); }, task);
        task = std::monostate{};  // what the task kept alive goes at once, not with the batch
      }
    }
  }

  void execute(std::monostate) {}
  void execute(const Launch& task) {
    guarded(task.name, task.work, [&] { task.fn(workers); });
  }
  void execute(const Host& task) { guarded(task.name, Work{}, task.fn); }
  void execute(const Observe& task) { observer = task.observer; }
  void execute(const std::shared_ptr<Completion>& done) { done->complete(failure); }
  void execute(const Event& event) {
    const auto wait = [&] {
      try {
        event.synchronize();
      } catch (const Error& error) {
        if (!failure) failure = make_failure(error);
      }
    };
    observed("wait", Work{}, wait);
  }

  template <class Fn>
  void observed(std::string_view name, const Work& work, const Fn& fn) {
    if (observer == nullptr) return fn();
    const auto begin = std::chrono::steady_clock::now();
    fn();
    observer->task_ran({name, work, begin, std::chrono::steady_clock::now()});
  }

  template <class Fn>
  void guarded(std::string_view name, const Work& work, const Fn& fn) {
    if (failure) return;
    if (options.jitter_us > 0) delay();
    try {
      observed(name, work, fn);
    } catch (...) {
      failure = current_failure(options.name, name);
    }
  }

  void delay() {
    const RngKey key{options.jitter_seed, hash_name(options.name), 0};
    const uint64_t span = static_cast<uint64_t>(options.jitter_us) + 1;
    std::this_thread::sleep_for(std::chrono::microseconds(key.bits(executed++) % span));
  }

  Workers& workers;
  const Options& options;
  // Of the stream's thread.
  FailurePtr failure;
  TaskObserver* observer = nullptr;
  uint64_t executed = 0;

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Task> tasks;
  bool closing = false;
  std::atomic<bool> news{false};  // tasks or closing; guarded by mutex, but polled without it
  std::thread thread;
};

CpuStream::CpuStream(Workers& workers, Options options)
    : workers_(workers), options_(std::move(options)) {
  if (!options_.dry) queue_ = std::make_unique<Queue>(workers_, options_);
}

CpuStream::~CpuStream() = default;

Event CpuStream::record() {
  if (options_.dry) return {};
  auto done = std::make_shared<Completion>(queue_->thread.get_id());
  queue_->push(done);
  return Event(done);
}

void CpuStream::wait(const Event& event) {
  if (options_.dry || !event.state()) return;
  if (event.ready()) {
    // A failed event must still be queued: its error takes effect in order.
    try {
      return event.synchronize();
    } catch (const Error&) {
    }
  } else if (const auto* own = dynamic_cast<const Completion*>(event.state().get());
             own != nullptr && own->completer() == queue_->thread.get_id()) {
    return;
  }
  queue_->push(event);
}

void CpuStream::host(std::string_view name, std::function<void()> fn) {
  if (!options_.dry) queue_->push(Host{std::string(name), std::move(fn)});
}

void CpuStream::observe(TaskObserver* observer) {
  if (!options_.dry) queue_->push(Observe{observer});
}

void CpuStream::launch(const char* name, const Work& work, std::function<void(Workers&)> fn) {
  if (!options_.dry) queue_->push(Launch{name, work, std::move(fn)});
}

}  // namespace zpp
