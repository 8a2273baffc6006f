// Ranks as processes, through UCX: shared memory inside a host, TCP or RDMA between hosts.
#pragma once

#include <memory>
#include <string>

#include "comm/rendezvous.h"
#include "comm/store.h"
#include "comm/transport.h"

namespace zpp {

struct UcxOptions {
  /// Network interfaces, "eth0,mlx5_0:1"; empty: UCX chooses.
  std::string interfaces;
  /// "all", or UCX's list of transports, "tcp", "sm,tcp", "rc,sm".
  std::string transports = "all";
  Millis connect_timeout{60000};
};

/// Publishes this rank's address in `store` under `plane`, waits for all others' and connects to a
/// peer on first use. The store is not used later.
/// Errors: kIo with UCX's words when no transport can be opened
///         kTimeout when a rank's address does not come; kInvalidArgument for options UCX refuses
/// After an error of a call, and after abort(), all calls fail with it; peers that were in touch are
/// told. Channel 1023 is its own.
std::unique_ptr<Transport> make_ucx_transport(Store& store, const Rendezvous& place, int plane,
                                              const UcxOptions& options);

/// Takes back the crash handlers that UCX installs when it is loaded, and silences its prints.
/// make_ucx_transport() does it too; programs that link UCX call it early in main().
void quiet_ucx() noexcept;

}  // namespace zpp
