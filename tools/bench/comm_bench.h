// `zpp-bench comm`: collectives between the processes of this machine, against what the transport
// can do at all.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/bench/measure.h"

namespace zpp {

struct CommBench {
  int ranks = 2;
  int nodes = 1;                                               // the ranks pretend to be on
  std::vector<int64_t> bytes = {64 << 10, 1 << 20, 64 << 20};  // of a whole buffer
  /// "local": threads, "ucx": processes, "ucx-tcp": processes without shared memory.
  std::string transport = "ucx";
  std::string interfaces;  // of the network, for ucx; empty: any
  std::string algorithm;   // empty: the cheapest by the measured links
  bool quantized = false;  // coded collectives of 16-bit values instead
  double seconds = 0.5;    // for each collective and size
};

/// Runs the ranks and prints what rank 0 measures: single messages; latency and bandwidth for each
/// class of link; then time, bandwidth and shares of the single messages' bandwidth for each
/// collective and size. With `quantized` first what coding takes (bench_quantize()), and then what
/// coded collectives are worth (bench_coded()).
/// Call it before the process starts threads: ranks are forked.
/// Errors: kInvalidArgument for counts below 1, nodes that do not divide ranks, unknown names;
///         kPeerLost when a rank ended badly
void bench_comm(const CommBench& options, const Print& print);

}  // namespace zpp
