// The CPU's stream: a thread with a queue, whose tasks may use all workers of the process.
#pragma once

#include <any>
#include <map>
#include <typeindex>
#include <utility>

#include "core/stream.h"
#include "core/workers.h"

namespace zpp {

/// Instruction sets that kernels are compiled for. The enumerators are ordered.
enum class Isa : uint8_t { kAvx2, kAvx512 };

const char* to_string(Isa isa);

/// The best this CPU offers.
/// Errors:  kFailedPrecondition on a CPU without AVX2 and FMA.
Isa best_isa();

class CpuStream final : public Stream {
 public:
  struct Options {
    std::string name = "compute";
    Isa isa = best_isa();
    /// Tasks are checked when enqueued and then dropped: with a pool that counts instead of
    /// allocating, a whole training step can be walked through to learn its memory (`--dry-run`).
    bool dry = false;
    /// Tests: a random delay of up to this many microseconds before each task, from `jitter_seed`.
    int64_t jitter_us = 0;
    uint64_t jitter_seed = 0;
  };

  /// `workers` must outlive the stream.
  CpuStream(Workers& workers, Options options);
  ~CpuStream() override;

  Device device() const override { return {DeviceType::kCpu, 0}; }
  const std::string& name() const override { return options_.name; }
  Event record() override;
  void wait(const Event& event) override;
  void host(std::string_view name, std::function<void()> fn) override;
  void observe(TaskObserver* observer) override;

  /// What kernels call: host() with the team of workers at hand. `name` must be a literal (kept by
  /// pointer); `work` is for observers.
  void launch(const char* name, const Work& work, std::function<void(Workers&)> fn);
  void launch(const char* name, std::function<void(Workers&)> fn) {
    launch(name, Work{}, std::move(fn));
  }

  Workers& workers() const { return workers_; }
  Isa isa() const { return options_.isa; }
  bool dry() const { return options_.dry; }

  /// State that a library needs per stream (a cache of compiled GEMMs, say), made on first use.
  /// Call it from tasks of this stream only: they run one at a time, so no lock is needed.
  template <class T>
  T& library_state() {
    std::any& slot = library_[std::type_index(typeid(T))];
    if (!slot.has_value()) slot = std::make_shared<T>();
    return *std::any_cast<std::shared_ptr<T>&>(slot);
  }

 private:
  struct Queue;

  Workers& workers_;
  const Options options_;
  std::map<std::type_index, std::any> library_;
  std::unique_ptr<Queue> queue_;
};

}  // namespace zpp
