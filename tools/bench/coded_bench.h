// `zpp-bench comm --quantized`: gathers of weights and sums of gradients whose messages are coded,
// against those of 16 bits.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/communicator.h"
#include "comm/ledger.h"
#include "comm/topology.h"
#include "core/runtime.h"
#include "tools/bench/measure.h"

namespace zpp {

struct CodedBench {
  std::vector<int64_t> bytes;  // of buffers of 16-bit values; rounded up to whole parts
  double seconds = 0.5;        // for each collective and size
};

/// Prints, for each size and way to send, time, effective bandwidth (the buffer's bytes in 16 bits /
/// time, coding included), how much faster than 16 bits that is, bytes that a node sends to others
/// and a rank inside its node, and the error of what comes out: its root mean square as a share of
/// that of the true values. All ranks call it. `ledger` is that of `world`, whose stream is the
/// runtime's.
///
/// Weights are N(0, 0.02) in bf16. Rank r's gradient is 0.5 times what all have in common, N(0, 1), and
/// N(0, 1) of its own; the truth is their mean in f32.
void bench_coded(Runtime& runtime, Communicator& world, const Topology& topology,
                 const Ledger& ledger, const CodedBench& options, const Print& print);

}  // namespace zpp
