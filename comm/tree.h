// Collectives of few steps, for small messages and for one rank that tells all. P members, V bytes.
//
//   broadcast    ceil(log2 w) steps per level of w peers, outermost first: the root (and whoever
//                passes on) sends V per step; P - 1 messages in all, between nodes one for each
//   all-reduce   log2 P steps, V sent per rank and step; P that is no power of two: 2 steps more
//   barrier      ceil(log2 P) steps of empty messages
#pragma once

#include "comm/by_level.h"
#include "comm/exchange.h"
#include "comm/levels.h"

namespace zpp {

/// A binomial tree per level.
void tree_broadcast(Exchange& exchange, const Levels& levels, std::span<std::byte> inout, int root);

/// The root sends to everybody: one step, (P-1) V from one rank.
void direct_broadcast(Exchange& exchange, std::span<std::byte> inout, int root);

/// Recursive doubling. Everybody adds the same numbers in the same order, rounded to their dtype at
/// every step.
void tree_all_reduce(Exchange& exchange, const Reduction& reduction, int64_t count,
                     std::byte* inout);

void tree_barrier(Exchange& exchange);

}  // namespace zpp
