// Reduce-scatter whose messages are coded: one all-to-all at each level of nested groups. Members of
// a node exchange first, code what they have summed up anew, and exchange with their peers of other
// nodes: gradients cross between nodes once, in few bits. Source: Wang et al. 2023, arXiv:2306.10209
// (qgZ).
#pragma once

#include <cstdint>
#include <vector>

#include "comm/coded_reduction.h"
#include "comm/exchange.h"
#include "comm/levels.h"

namespace zpp {

/// out (n) = scale * part me() of the sum of all in (size * n), every rank's own part coded like the
/// others'; `out` may be that part of `in`. Sums are taken in f32, in rank order at each level.
/// Bytes per member: at level j, (ways - 1) * pieces packets of a part; nothing else.
void coded_reduce_scatter(Exchange& exchange, const Levels& levels, const Topology& topology,
                          const std::vector<int>& members, const CodedReduction& how,
                          const float* in, float* out, int64_t n);

}  // namespace zpp
