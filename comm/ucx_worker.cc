#include "comm/ucx_worker.h"

#include <fmt/format.h>
#include <poll.h>
#include <ucs/config/global_opts.h>
#include <ucs/debug/debug.h>

#include <csignal>

#include "comm/deadline.h"

namespace zpp {

namespace {

// How often UCX looks whether a silent connection still lives.
constexpr const char* kKeepalive = "1s";

void check(ucs_status_t status, const std::string& what, Code code = Code::kIo) {
  if (status == UCS_OK) return;
  throw Error(code, fmt::format("ucx: {}: {}", what, ucs_status_string(status)));
}

struct ConfigCloser {
  void operator()(ucp_config_t* config) const { ucp_config_release(config); }
};
using Config = std::unique_ptr<ucp_config_t, ConfigCloser>;

Config configure(const UcxOptions& options) {
  ucp_config_t* raw = nullptr;
  check(ucp_config_read(nullptr, nullptr, &raw), "reading its configuration");
  Config config(raw);
  const auto set = [&](const char* name, const std::string& value) {
    check(ucp_config_modify(raw, name, value.c_str()), fmt::format("setting {}={}", name, value),
          Code::kInvalidArgument);
  };
  set("TLS", options.transports);
  if (!options.interfaces.empty()) {
    set("NET_DEVICES", options.interfaces);
  } else if (options.transports == "tcp") {
    // It would halve messages inside a host between its card and the loopback device, which are the
    // same path through the kernel.
    set("MAX_RNDV_RAILS", "1");
  }
  set("KEEPALIVE_INTERVAL", kKeepalive);
  // Without it shared memory takes no part where UCX has to notice lost peers.
  set("MM_ERROR_HANDLING", "y");
  return config;
}

}  // namespace

void quiet_ucx() noexcept {
  // When the library is loaded it takes over the signals of a crash, and it prints what it sees as
  // errors, a lost peer among them, which is ours to report.
  for (const int signal : {SIGILL, SIGSEGV, SIGBUS, SIGFPE}) ucs_debug_disable_signal(signal);
  ucs_global_opts.log_component.log_level = UCS_LOG_LEVEL_FATAL;
  ucs_global_opts.warn_unused_env_vars = 0;
}

UcxWorker::UcxWorker(const UcxOptions& options) {
  quiet_ucx();
  const Config config = configure(options);
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
  ucp_context_h context = nullptr;
  const std::string choice = fmt::format("(transports '{}', interfaces '{}')", options.transports,
                                         options.interfaces.empty() ? "any" : options.interfaces);
  check(ucp_init(&params, config.get(), &context), "no context " + choice);
  context_.reset(context);

  ucp_worker_params_t worker_params{};
  worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker_params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  ucp_worker_h worker = nullptr;
  check(ucp_worker_create(context, &worker_params, &worker), "no worker " + choice);
  worker_.reset(worker);
  check(ucp_worker_get_efd(worker, &event_fd_), "no event descriptor " + choice);
}

std::string UcxWorker::address() const {
  ucp_address_t* address = nullptr;
  size_t size = 0;
  check(ucp_worker_get_address(handle(), &address, &size), "no address");
  std::string bytes(reinterpret_cast<const char*>(address), size);
  ucp_worker_release_address(handle(), address);
  return bytes;
}

bool UcxWorker::arm() { return ucp_worker_arm(handle()) == UCS_OK; }

ucp_ep_h UcxWorker::connect(const std::string& address, bool watched, ucp_err_handler_cb_t on_lost,
                            void* argument) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  params.err_mode = watched ? UCP_ERR_HANDLING_MODE_NONE : UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {on_lost, argument};
  ucp_ep_h endpoint = nullptr;
  check(ucp_ep_create(handle(), &params, &endpoint), "cannot connect", Code::kPeerLost);
  return endpoint;
}

void UcxWorker::flush(const std::vector<ucp_ep_h>& endpoints, Millis limit) {
  const ucp_request_param_t plain{};
  std::vector<ucs_status_ptr_t> requests;
  for (const ucp_ep_h endpoint : endpoints) {
    requests.push_back(ucp_ep_flush_nbx(endpoint, &plain));
  }
  finish(requests, limit);
}

void UcxWorker::close(const std::vector<ucp_ep_h>& endpoints, Millis limit) {
  ucp_request_param_t at_once{};
  at_once.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  at_once.flags = UCP_EP_CLOSE_FLAG_FORCE;
  std::vector<ucs_status_ptr_t> requests;
  for (const ucp_ep_h endpoint : endpoints) {
    requests.push_back(ucp_ep_close_nbx(endpoint, &at_once));
  }
  finish(requests, limit);
}

void UcxWorker::finish(const std::vector<ucs_status_ptr_t>& requests, Millis limit) {
  const Deadline deadline(limit);
  for (const ucs_status_ptr_t request : requests) {
    if (!UCS_PTR_IS_PTR(request)) continue;
    while (ucp_request_check_status(request) == UCS_INPROGRESS && !deadline.passed()) {
      if (progress() || !arm()) continue;
      pollfd polled{event_fd_, POLLIN, 0};
      ::poll(&polled, 1, static_cast<int>(deadline.left(Millis(20)).count()));
    }
    ucp_request_free(request);
  }
}

}  // namespace zpp
