// Where the ranks of a job find each other: a small map of keys to values that all of them reach.
// For rendezvous only; a run's data never goes through it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/stream.h"

namespace zpp {

class Store {
 public:
  virtual ~Store() = default;
  /// Publishes a value. Setting a key again replaces its value.
  /// Errors: kIo, kPeerLost when the store cannot be reached
  virtual void set(std::string_view key, std::string_view value) = 0;
  /// Blocks until the key is there.
  /// Errors: kTimeout with the key and how long it was waited for; kIo, kPeerLost
  virtual std::string get(std::string_view key, Millis timeout) = 0;
};

/// Ranks as threads of one process.
std::unique_ptr<Store> make_memory_store();

/// Keys as files of a directory on a file system that all hosts share. A directory serves one job;
/// values appear whole.
/// Errors: kIo, kInvalidArgument (token of another job in that directory)
std::unique_ptr<Store> make_file_store(const std::filesystem::path& directory,
                                       std::string_view job_token);

/// The server of a TCP store: one thread in rank 0's process (or the launcher's).
class TcpStoreServer {
 public:
  /// Listens on `port` of all interfaces; 0 takes a free one.
  /// `on_stranger` is told of each connection that did not know the token, which is closed.
  /// Errors: kIo naming the port when it is taken
  TcpStoreServer(uint16_t port, std::string job_token,
                 std::function<void(const std::string& text)> on_stranger = {});
  ~TcpStoreServer();
  uint16_t port() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// A client of such a server. Tries to connect until `timeout`: rank 1 may start before rank 0.
/// Errors: kTimeout naming host and port; kInvalidArgument when the server refuses the token
std::unique_ptr<Store> connect_tcp_store(const std::string& host, uint16_t port,
                                         std::string_view job_token, Millis timeout);

}  // namespace zpp
