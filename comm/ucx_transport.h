// Ranks as processes, through UCX: shared memory inside a host, TCP or RDMA between hosts.
#pragma once

#include <memory>
#include <string>

#include "comm/store.h"
#include "comm/topology.h"
#include "comm/transport.h"

namespace zpp {

struct UcxOptions {
  /// Network interfaces, "eth0,mlx5_0:1"; empty: UCX chooses.
  std::string interfaces;
  /// "all", or UCX's list of transports, "tcp", "sm,tcp", "rc,sm".
  std::string transports = "all";
  Millis connect_timeout{60000};
};

/// Publishes this rank's address in `store` under `plane` and connects to a peer on first use.
/// Errors: kIo with UCX's words when no transport can be opened
std::unique_ptr<Transport> make_ucx_transport(Store& store, const Rendezvous& place, int plane,
                                              const UcxOptions& options);

}  // namespace zpp
