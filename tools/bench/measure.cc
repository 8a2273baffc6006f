#include "tools/bench/measure.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>

namespace zpp {

double best_seconds(Stream& stream, const std::function<void(Stream&)>& work, double budget_s) {
  using Clock = std::chrono::steady_clock;
  constexpr int kMinRuns = 3;
  const auto seconds = [](Clock::duration d) { return std::chrono::duration<double>(d).count(); };
  work(stream);
  stream.synchronize();
  double best = std::numeric_limits<double>::infinity();
  const Clock::time_point start = Clock::now();
  for (int run = 0; run < kMinRuns || seconds(Clock::now() - start) < budget_s; ++run) {
    const Clock::time_point begin = Clock::now();
    work(stream);
    stream.synchronize();
    best = std::min(best, seconds(Clock::now() - begin));
  }
  return best;
}

double memcpy_bandwidth(Runtime& runtime, double budget_s) {
  constexpr int64_t kBytes = 64 << 20;
  constexpr int64_t kPiece = 1 << 20;
  const Tensor from = runtime.tensor({kBytes}, DType::kU8),
               to = runtime.tensor({kBytes}, DType::kU8);
  auto* const source = from.view().as<uint8_t>();
  auto* const target = to.view().as<uint8_t>();
  runtime.workers().parallel_for(kBytes, kPiece, [&](int64_t begin, int64_t end) {
    std::memset(source + begin, 1, static_cast<size_t>(end - begin));
  });
  const auto copy = [&](Stream& stream) {
    stream.host("memcpy", [&] {
      runtime.workers().parallel_for(kBytes, kPiece, [&](int64_t begin, int64_t end) {
        std::memcpy(target + begin, source + begin, static_cast<size_t>(end - begin));
      });
    });
  };
  return 2.0 * static_cast<double>(kBytes) / best_seconds(runtime.compute(), copy, budget_s);
}

double clock_rate() {
  using Clock = std::chrono::steady_clock;
  constexpr int kRuns = 50;
  constexpr int64_t kAdditions = 1 << 18;
  double best = 0;
  for (int run = 0; run < kRuns; ++run) {
    int64_t sum = run;
    const Clock::time_point begin = Clock::now();
    for (int64_t i = 0; i < kAdditions; i += 4) {
      // The compiler must not know the sum in between: each addition waits for the last.
      sum += 1;
      asm("" : "+r"(sum));
      sum += 1;
      asm("" : "+r"(sum));
      sum += 1;
      asm("" : "+r"(sum));
      sum += 1;
      asm volatile("" : "+r"(sum));
    }
    const std::chrono::duration<double> time = Clock::now() - begin;
    best = std::max(best, static_cast<double>(kAdditions) / time.count());
  }
  return best;
}

}  // namespace zpp
