// How the benchmarks take times.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "core/runtime.h"

namespace zpp {

/// Where benchmarks print a line of their tables.
using Print = std::function<void(const std::string& line)>;

/// Shortest time in seconds of `work` from enqueueing to completion, over as many repetitions as
/// fit into `budget_s` after one unmeasured run, at least three.
double best_seconds(Stream& stream, const std::function<void(Stream&)>& work, double budget_s);

/// Bytes per second, read and written, of memcpy by all workers on arrays that do not fit the
/// caches.
double memcpy_bandwidth(Runtime& runtime, double budget_s);

/// Cycles per second of a core, from a chain of additions.
double clock_rate();

}  // namespace zpp
