// The store that a job's ranks and launchers meet in.
#pragma once

#include <memory>
#include <string>

#include "comm/store.h"

namespace zpp {

/// Where it is.
struct StorePlace {
  std::string directory = {};  // on a file system that all machines share; empty: over TCP
  std::string address = {};
  int port = 0;
  std::string token = {};
  int attempt = 0;  // how often the job was started again: its keys are apart from earlier ones
};

/// Errors:  as connect_tcp_store and make_file_store
std::unique_ptr<Store> connect_store(const StorePlace& place, Millis timeout);

/// A view of `store` in which all keys begin with `prefix`.
std::unique_ptr<Store> prefixed(std::unique_ptr<Store> store, std::string prefix);

/// 32 random hexadecimal digits.
std::string make_job_token();

}  // namespace zpp
