// Collectives in which a rank receives from its left neighbour and sends to its right one. P members,
// V bytes in the whole buffer.
//
//   all-gather, reduce-scatter   P - 1 steps, (P-1)/P V sent per rank
//   broadcast                    a chain that starts at the root: V sent by all but the last
//
// Blocks go in chunks, so that a chunk is added and passed on while the next one arrives. One
// connection per rank and a node boundary that is crossed once per direction; many steps.
#pragma once

#include "comm/by_level.h"
#include "comm/exchange.h"
#include "comm/levels.h"

namespace zpp {

void ring_all_gather(Exchange& exchange, const Blocks& blocks, const std::byte* own,
                     std::byte* out);

/// The sum of a block starts at the rank after its owner and is rounded to the dtype that travels at
/// every step. Overwrites `in`.
void ring_reduce_scatter(Exchange& exchange, const Blocks& blocks, const Reduction& reduction,
                         std::byte* in, std::byte* out);

void ring_broadcast(Exchange& exchange, std::span<std::byte> inout, int root);

}  // namespace zpp
