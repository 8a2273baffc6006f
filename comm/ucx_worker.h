// One UCX context and worker, and what has to be said to the library to get them. Private to the
// UCX transport.
#pragma once

#include <ucp/api/ucp.h>

#include <memory>
#include <string>
#include <vector>

#include "comm/ucx_transport.h"

namespace zpp {

/// For one thread at a time. Endpoints belong to it and are gone with it.
class UcxWorker {
 public:
  /// Errors: kIo with UCX's words when no transport can be opened
  explicit UcxWorker(const UcxOptions& options);
  UcxWorker(const UcxWorker&) = delete;
  UcxWorker& operator=(const UcxWorker&) = delete;

  ucp_worker_h handle() const { return worker_.get(); }
  /// What a peer needs to connect.
  std::string address() const;
  /// Returns whether anything happened.
  bool progress() { return ucp_worker_progress(worker_.get()) != 0; }
  /// After true, event_fd() becomes readable once there is something to do.
  /// After false there already is.
  bool arm();
  int event_fd() const { return event_fd_; }

  /// Never blocks; the connection is made meanwhile. `on_lost(argument, ...)` runs inside progress().
  /// With `watched` the caller will notice itself when the peer is lost: UCX then has more ways to
  /// choose from, but may not notice, and close() is not for such an endpoint.
  /// Errors: kPeerLost with UCX's words
  ucp_ep_h connect(const std::string& address, bool watched, ucp_err_handler_cb_t on_lost,
                   void* argument);
  /// What was sent on these endpoints is on its way or lost, or `limit` has passed.
  void flush(const std::vector<ucp_ep_h>& endpoints, Millis limit);
  /// Ends endpoints and what goes on there, at once.
  void close(const std::vector<ucp_ep_h>& endpoints, Millis limit);

 private:
  struct Closer {
    void operator()(ucp_context_h context) const { ucp_cleanup(context); }
    void operator()(ucp_worker_h worker) const { ucp_worker_destroy(worker); }
  };
  void finish(const std::vector<ucs_status_ptr_t>& requests, Millis limit);

  std::unique_ptr<std::remove_pointer_t<ucp_context_h>, Closer> context_;
  std::unique_ptr<std::remove_pointer_t<ucp_worker_h>, Closer> worker_;
  int event_fd_ = -1;
};

}  // namespace zpp
