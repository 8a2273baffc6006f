#include "parallel/stall_clock.h"

#include <chrono>

namespace zpp {
namespace {

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

void StallClock::wait(const Event& event) {
  if (event.ready()) return stream_.wait(event);  // also takes over an error
  stream_.host("stall begins", [times = times_] { times->begin_s = now_s(); });
  stream_.wait(event);
  stream_.host("stall ends", [times = times_] {
    times->total_s.store(times->total_s.load() + now_s() - times->begin_s);
  });
}

}  // namespace zpp
