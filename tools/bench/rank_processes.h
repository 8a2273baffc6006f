// Forked ranks for benchmarks.
#pragma once

#include <functional>

namespace zpp {

/// Runs `body` in `count` forked processes and waits for all. When one ends badly the others get
/// some seconds to notice, then they are killed; they end with this process, too.
/// Errors: kPeerLost naming the rank that ended badly first and how; kIo when none can be forked
void run_rank_processes(int count, const std::function<void(int rank)>& body);

}  // namespace zpp
