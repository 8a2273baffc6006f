#include "tools/bench/profile.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string_view>
#include <vector>

namespace zpp {

namespace {

using Clock = std::chrono::steady_clock;
using Family = StepProfile::Family;

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

int64_t page_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt + usage.ru_majflt;
}

constexpr std::string_view kForward = "gemm_nt";
constexpr std::string_view kInputGradient = "gemm_nn";
constexpr std::string_view kWeightGradient = "gemm_tn";

/// Tasks that are read together; all others are families of their own.
std::string family_of(std::string_view task) {
  struct Name {
    std::string_view task, family;
  };
  static constexpr Name kNames[] = {
      {kForward, "gemm forward"},
      {kInputGradient, "gemm dx"},
      {kWeightGradient, "gemm dW"},
      {"activation", "gelu"},
      {"copy", "copies"},
      {"activation_backward", "gelu_backward"},
      {"fill", "copies"},
      {"scale_by", "copies"},
      {"copy_from_host", "host"},
      {"copy_to_host", "host"},
      {"read", "host"},
      {"step_guard", "sum_squares"},
  };
  for (const Name& name : kNames) {
    if (name.task == task) return std::string(name.family);
  }
  return std::string(task);
}

/// `value` in units of `unit`, empty without any.
std::string cell(double value, double unit, int width, int digits) {
  if (!(value > 0) || std::isinf(value)) return fmt::format("{:>{}}", "", width);
  return fmt::format("{:>{}.{}f}", value / unit, width, digits);
}

std::string limit_cell(const Family& f) {
  if (f.bound_s <= 0 || f.seconds <= 0) return "";
  const bool memory = f.bandwidth_bound_s >= f.arithmetic_bound_s;
  return fmt::format("{:>6.1f} % of {}", 100.0 * f.bound_s / f.seconds,
                     memory ? "memcpy" : "GEMM peak");
}

std::string line(std::string_view name, const Family& f, double step_s, std::string_view limit) {
  std::string text = fmt::format(
      "{:<22}{:>6}{:>10.2f}{:>7.1f} %{}{}{}{}  {}", name, f.calls, 1e3 * f.seconds,
      100.0 * f.seconds / step_s, cell(f.bytes, 1e6, 10, 1), cell(f.flops, 1e9, 9, 2),
      cell(f.bytes / f.seconds, 1e9, 8, 1), cell(f.flops / f.seconds, 1e9, 9, 1), limit);
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

}  // namespace

void Profiler::task_ran(const TaskRecord& task) noexcept {
  Family& f = step_.families[family_of(task.name)];
  const double bandwidth_s = task.work.bytes / limits_.bytes_per_s;
  const double arithmetic_s = task.work.flops / limits_.flops_per_s;
  ++f.calls;
  f.seconds += seconds_between(task.begin, task.end);
  f.bytes += task.work.bytes;
  f.flops += task.work.flops;
  f.bandwidth_bound_s += bandwidth_s;
  f.arithmetic_bound_s += arithmetic_s;
  f.bound_s += std::max(bandwidth_s, arithmetic_s);
  if (task.work.shape[0] > 0) {
    step_.product_flops[{std::string(task.name), task.work.shape}] += task.work.flops;
  }
}

void Profiler::begin_step() {
  step_ = {};
  faults_at_begin_ = page_faults();
  begin_ = Clock::now();
}

StepProfile Profiler::end_step() {
  step_.seconds = seconds_between(begin_, Clock::now());
  step_.page_faults = page_faults() - faults_at_begin_;
  return std::exchange(step_, {});
}

void print_profile(const StepProfile& step, const MachineLimits& limits, const Print& print) {
  std::vector<std::pair<std::string, Family>> sorted(step.families.begin(), step.families.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  Family total, idle;
  idle.seconds = step.seconds;
  print(fmt::format(
      "profile of a step of {:.1f} ms; memcpy {:.1f} GB/s read + written, GEMM peak "
      "{:.1f} GFLOP/s; {} page faults",
      1e3 * step.seconds, 1e-9 * limits.bytes_per_s, 1e-9 * limits.flops_per_s, step.page_faults));
  print(fmt::format("{:<22}{:>6}{:>10}{:>9}{:>10}{:>9}{:>8}{:>9}  {}", "family", "calls", "ms",
                    "share", "MB", "GFLOP", "GB/s", "GFLOP/s", " limit / time"));
  for (const auto& [name, f] : sorted) {
    print(line(name, f, step.seconds, limit_cell(f)));
    idle.seconds -= f.seconds;
    total.calls += f.calls;
    total.bytes += f.bytes;
    total.flops += f.flops;
    total.bound_s += f.bound_s;
  }
  total.seconds = step.seconds;
  print(line("idle", idle, step.seconds, ""));
  print(line("total", total, step.seconds,
             fmt::format("{:>6.1f} % of both", 100.0 * total.bound_s / total.seconds)));
}

double gemm_rate_on_shapes(Runtime& runtime, const StepProfile& step, DType dtype, double seconds) {
  double flops = 0, time = 0;
  for (const auto& [product, product_flops] : step.product_flops) {
    const auto& [task, shape] = product;
    const auto [m, n, k] = shape;
    LinearProduct alone{task, LinearProduct::kForward, m, k, n};
    if (task == kInputGradient) {
      alone = {task, LinearProduct::kInputGradient, m, n, k};
    } else if (task == kWeightGradient) {
      alone = {task, LinearProduct::kWeightGradient, k, n, m};
    }
    flops += product_flops;
    time += product_flops / product_rate(runtime, alone, dtype, seconds);
  }
  return time > 0 ? flops / time : 0.0;
}

}  // namespace zpp
