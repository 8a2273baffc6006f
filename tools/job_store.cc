#include "tools/job_store.h"

#include <fmt/format.h>

#include <filesystem>
#include <functional>
#include <random>
#include <utility>

#include "core/error.h"

namespace zpp {
namespace {

class PrefixedStore final : public Store {
 public:
  PrefixedStore(std::unique_ptr<Store> store, std::string prefix)
      : store_(std::move(store)), prefix_(std::move(prefix)) {}
  void set(std::string_view key, std::string_view value) override {
    store_->set(prefix_ + std::string(key), value);
  }
  std::string get(std::string_view key, Millis timeout) override {
    return store_->get(prefix_ + std::string(key), timeout);
  }

 private:
  const std::unique_ptr<Store> store_;
  const std::string prefix_;
};

}  // namespace

std::unique_ptr<Store> connect_store(const StorePlace& place, Millis timeout) {
  std::unique_ptr<Store> store;
  if (place.directory.empty()) {
    store =
        connect_tcp_store(place.address, static_cast<uint16_t>(place.port), place.token, timeout);
  } else {
    // Jobs after each other may use the same directory.
    const std::string job = fmt::format("job-{:016x}", std::hash<std::string>()(place.token));
    store = make_file_store(std::filesystem::path(place.directory) / job, place.token);
  }
  return prefixed(std::move(store), fmt::format("attempt-{}/", place.attempt));
}

std::unique_ptr<Store> prefixed(std::unique_ptr<Store> store, std::string prefix) {
  return std::make_unique<PrefixedStore>(std::move(store), std::move(prefix));
}

std::string make_job_token() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

}  // namespace zpp
