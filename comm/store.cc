#include "comm/store.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

#include "comm/deadline.h"
#include "core/error.h"
#include "core/files.h"

namespace zpp {

namespace {

Error waited_in_vain(std::string_view key, Millis timeout) {
  return Error(Code::kTimeout, fmt::format("store: nobody has set '{}' within {:.1f} s", key,
                                           std::chrono::duration<double>(timeout).count()));
}

class MemoryStore final : public Store {
 public:
  void set(std::string_view key, std::string_view value) override {
    const std::lock_guard lock(mutex_);
    values_[std::string(key)] = value;
    changed_.notify_all();
  }

  std::string get(std::string_view key, Millis timeout) override {
    std::unique_lock lock(mutex_);
    const auto here = [&] { return values_.find(key) != values_.end(); };
    if (!changed_.wait_until(lock, Deadline(timeout).at(), here)) {
      throw waited_in_vain(key, timeout);
    }
    return values_.find(key)->second;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string, std::less<>> values_;
};

/// A name that every file system takes: '%' and two digits for what is not plain.
std::string file_name(std::string_view key) {
  std::string name = "key-";
  for (const char c : key) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       c == '-' || c == '_' || c == '.';
    name += plain ? std::string(1, c) : fmt::format("%{:02x}", static_cast<unsigned char>(c));
  }
  constexpr size_t kLongestName = 200;  // leaves room for the temporary file's ending
  if (name.size() > kLongestName) {
    throw Error(Code::kInvalidArgument,
                fmt::format("store: the key '{}' is too long for a file name", key));
  }
  return name;
}

class FileStore final : public Store {
 public:
  explicit FileStore(std::filesystem::path directory) : directory_(std::move(directory)) {}

  void set(std::string_view key, std::string_view value) override {
    write_file_atomic(directory_ / file_name(key), value);
  }

  std::string get(std::string_view key, Millis timeout) override {
    const std::filesystem::path path = directory_ / file_name(key);
    const Deadline deadline(timeout);
    Millis pause{1};
    while (true) {
      std::error_code ignored;
      if (std::filesystem::exists(path, ignored)) return read_file(path);
      if (deadline.passed()) throw waited_in_vain(key, timeout);
      std::this_thread::sleep_for(deadline.left(pause));
      pause = std::min(2 * pause, Millis(50));
    }
  }

 private:
  const std::filesystem::path directory_;
};

/// Makes `path` with this content unless it exists. The content is whole from the first moment on:
/// a file with a name of its own gets a second name, which fails if that is taken.
void publish_once(const std::filesystem::path& path, std::string_view content) {
  std::string temporary = path.string() + ".XXXXXX";
  const int fd = ::mkstemp(temporary.data());  // for this user's eyes only
  const auto io_error = [&](const char* what) {
    return Error(Code::kIo, fmt::format("store: {}: cannot {}: {}", path.string(), what,
                                        std::strerror(errno)));
  };
  if (fd < 0) throw io_error("make it");
  const ssize_t written = ::write(fd, content.data(), content.size());
  const bool whole = written == static_cast<ssize_t>(content.size());
  const bool closed = ::close(fd) == 0;
  const bool linked = whole && closed && ::link(temporary.c_str(), path.c_str()) == 0;
  const int reason = errno;
  ::unlink(temporary.c_str());
  errno = reason;
  if (!whole || !closed) throw io_error("write it");
  if (!linked && errno != EEXIST) throw io_error("make it");
}

}  // namespace

std::unique_ptr<Store> make_memory_store() { return std::make_unique<MemoryStore>(); }

std::unique_ptr<Store> make_file_store(const std::filesystem::path& directory,
                                       std::string_view job_token) {
  std::error_code failure;
  std::filesystem::create_directories(directory, failure);
  if (failure) {
    throw Error(Code::kIo, fmt::format("store: {}: cannot make the directory: {}",
                                       directory.string(), failure.message()));
  }
  const std::filesystem::path token_file = directory / "token";
  publish_once(token_file, job_token);
  if (read_file(token_file) != job_token) {
    throw Error(Code::kInvalidArgument,
                fmt::format("store: {} serves another job (its token is not this job's); "
                            "give each job a directory of its own",
                            directory.string()));
  }
  return std::make_unique<FileStore>(directory);
}

}  // namespace zpp
