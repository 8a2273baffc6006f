// Collectives in which every rank talks to every peer of a level at once. With one level these are
// the direct algorithms, with the levels of the topology the two-level (or more) ones.
//
// P members, V bytes in the whole buffer, levels j of w_j peers (the product is P), o_j members in a
// group of level j. Bytes that a rank sends at level j: (w_j - 1) / o_j * V for gather and reduction,
// so that with 2 levels, N nodes of n ranks, a node sends n * (N-1)/(n N) * V = (N-1)/N V over slow
// links; (w_j - 1) / w_j * V for all-to-all. Steps: one per level. Long buffers go in chunks, so that
// the levels and the additions work on different chunks at the same time.
#pragma once

#include "comm/exchange.h"
#include "comm/levels.h"
#include "core/types.h"
#include "kernels/host_sum.h"

namespace zpp {

/// What reductions do beside moving bytes.
struct Reduction {
  kernels::HostReduction kind = kernels::HostReduction::kSum;
  DType dtype = DType::kF32;      // of the input and of what travels
  DType out_dtype = DType::kF32;  // of the result
  double scale = 1;               // of the result
};

/// Outermost level first. Block me of `out` comes from `own`, which may be there already.
void all_gather_by_level(Exchange& exchange, const Levels& levels, const Blocks& blocks,
                         const std::byte* own, std::byte* out);

/// Innermost level first; at each, peers are added in their order in f32 and rounded to the dtype
/// that travels, once. `out` takes block me and may lie at its place in `in`.
void reduce_scatter_by_level(Exchange& exchange, const Levels& levels, const Blocks& blocks,
                             const Reduction& reduction, const std::byte* in, std::byte* out);

/// Outermost level first: what goes to one group of a level travels there in one message. `blocks`
/// must be of equal length.
void all_to_all_by_level(Exchange& exchange, const Levels& levels, const Blocks& blocks,
                         const std::byte* in, std::byte* out);

}  // namespace zpp
