#include "core/runtime.h"

#include <fmt/format.h>

namespace zpp {

namespace {

const Runtime::Options& checked(const Runtime::Options& options) {
  if (options.device.type != DeviceType::kCpu) {
    throw Error(Code::kFailedPrecondition,
                fmt::format("device {} was asked for but this build has no CUDA device support",
                            to_string(options.device)));
  }
  if (options.threads < 0) {
    throw Error(
        Code::kInvalidArgument,
        fmt::format("threads is {} but should be at least 1, or 0 for all cores", options.threads));
  }
  return options;
}

int thread_count(const Runtime::Options& options) {
  if (options.dry) return 1;
  return options.threads > 0 ? options.threads : available_cores();
}

CpuStream::Options stream_options(const Runtime::Options& options) {
  CpuStream::Options result;
  result.isa = options.isa;
  result.dry = options.dry;
  result.jitter_us = options.jitter_us;
  result.jitter_seed = options.jitter_seed;
  return result;
}

}  // namespace

Runtime::Runtime(const Options& options)
    : options_(checked(options)),
      workers_(thread_count(options)),
      pool_(options.device, options.dry ? counted_memory() : host_memory()),
      compute_(workers_, stream_options(options)) {}

}  // namespace zpp
