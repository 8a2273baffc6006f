// What a process computes with: device, pool, workers and streams, in the order that destroys
// safely.
#pragma once

#include <memory>

#include "core/cpu_stream.h"
#include "core/pool.h"
#include "core/tensor.h"
#include "core/workers.h"

namespace zpp {

class Runtime {
 public:
  struct Options {
    Device device;
    int threads = 0;   // 0: available_cores()
    bool dry = false;  // walk through the work without memory and without computing
    Isa isa = best_isa();
    int64_t jitter_us = 0;
    uint64_t jitter_seed = 0;
  };

  explicit Runtime(const Options& options);

  Device device() const { return options_.device; }
  bool dry() const { return options_.dry; }
  Workers& workers() { return workers_; }
  Pool& pool() { return pool_; }
  Stream& compute() { return compute_; }
  Tensor tensor(const Shape& shape, DType dtype) { return Tensor(shape, dtype, pool_, compute_); }

 private:
  const Options options_;
  Workers workers_;
  Pool pool_;
  CpuStream compute_;
};

}  // namespace zpp
