#include "core/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "core/error.h"

namespace zpp {
namespace {

[[noreturn]] void fail(std::string_view what, const std::filesystem::path& path, int error) {
  const bool bad_name =
      error == ELOOP || error == ENOTDIR || error == EISDIR || error == ENAMETOOLONG;
  const Code code = error == ENOENT ? Code::kNotFound
                    : bad_name      ? Code::kInvalidArgument
                                    : Code::kIo;
  throw Error(code, fmt::format("{}: cannot {}: {}", path.string(), what,
                                std::generic_category().message(error)));
}

/// Opens a regular file for reading, and nothing else: a pipe without a writer would hang, a device
/// may never end.
int open_regular(const std::filesystem::path& path, struct stat& status) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) fail("open", path, errno);
  if (::fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) return fd;
  ::close(fd);
  throw Error(Code::kInvalidArgument,
              fmt::format("{}: expected a regular file, found {}", path.string(),
                          S_ISDIR(status.st_mode) ? "a directory" : "a pipe or device"));
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

void write_all(int fd, std::span<const std::byte> bytes, const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0) {
      if (errno == EINTR) continue;
      fail("write", path, errno);
    }
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

// A rename is durable only once its directory is.
void sync_directory(const std::filesystem::path& directory) {
  const Descriptor fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() < 0) fail("open directory", directory, errno);
  // Some network file systems cannot sync a directory and say EINVAL; the rename itself has been
  // done by then.
  if (::fsync(fd.get()) != 0 && errno != EINVAL) fail("sync directory", directory, errno);
}

std::filesystem::path directory_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  struct stat status {};
  const Descriptor fd(open_regular(path, status));
  size_ = status.st_size;
  if (size_ == 0) return;
  void* data = ::mmap(nullptr, static_cast<size_t>(size_), PROT_READ, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) fail("map", path, errno);
  data_ = static_cast<const std::byte*>(data);
}

MappedFile::~MappedFile() { unmap(); }

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this != &other) {
    unmap();
    path_ = std::move(other.path_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

void MappedFile::unmap() noexcept {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), static_cast<size_t>(size_));
  data_ = nullptr;
  size_ = 0;
}

void MappedFile::advise(Access access) const {
  if (data_ == nullptr) return;
  ::madvise(const_cast<std::byte*>(data_), static_cast<size_t>(size_),
            access == Access::kRandom ? MADV_RANDOM : MADV_SEQUENTIAL);
}

std::string read_file(const std::filesystem::path& path) {
  struct stat status {};
  const Descriptor fd(open_regular(path, status));
  std::string content;
  content.resize(static_cast<size_t>(status.st_size) +
                 1);  // one byte more: finds the end without a regrow
  size_t used = 0;
  while (true) {
    const ssize_t n = ::read(fd.get(), content.data() + used, content.size() - used);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("read", path, errno);
    if (n == 0) break;
    used += static_cast<size_t>(n);
    if (used == content.size()) content.resize(content.size() * 2 + 4096);
  }
  content.resize(used);
  return content;
}

AtomicFile::AtomicFile(std::filesystem::path path) : path_(std::move(path)) {
  std::error_code error;
  // A link stays a link: what it names is replaced.
  if (std::filesystem::is_symlink(path_, error)) {
    path_ = std::filesystem::weakly_canonical(path_, error);
    if (error) fail("follow the link", path_, error.value());
  }
  if (std::filesystem::exists(path_, error) && !std::filesystem::is_regular_file(path_, error)) {
    throw Error(Code::kInvalidArgument,
                path_.string() + ": exists and is no regular file, so it cannot be replaced");
  }
  std::filesystem::create_directories(directory_of(path_), error);
  if (error) fail("make the directory for", path_, error.value());
  std::string name = path_.string() + ".tmp.XXXXXX";
  fd_ = ::mkostemp(name.data(), O_CLOEXEC);
  if (fd_ < 0) fail("create", path_, errno);
  temporary_ = name;
  // mkostemp makes files that only the owner can read; the result is an ordinary file.
  struct stat old {};
  const bool replaces = ::stat(path_.c_str(), &old) == 0;
  ::fchmod(fd_, replaces ? (old.st_mode & 0777) : 0644);
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  write_all(fd_, bytes, path_);
  size_ += static_cast<int64_t>(bytes.size());
}

void AtomicFile::write_at(int64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd_, bytes.data(), bytes.size(), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("write", path_, errno);
    bytes = bytes.subspan(static_cast<size_t>(n));
    offset += n;
  }
}

void AtomicFile::commit() {
  if (fd_ < 0) throw Error(Code::kFailedPrecondition, path_.string() + ": committed twice");
  if (::fsync(fd_) != 0) fail("sync", path_, errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0)
    fail("rename the temporary file to", path_, errno);
  ::close(fd_);
  fd_ = -1;
  sync_directory(directory_of(path_));
}

FileLock::FileLock(const std::filesystem::path& path) {
  fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd_ < 0) fail("open", path, errno);
  if (::flock(fd_, LOCK_EX | LOCK_NB) == 0) return;
  const int error = errno;
  ::close(fd_);
  if (error != EWOULDBLOCK) fail("lock", path, error);
  throw Error(Code::kInvalidArgument, path.string() + ": another process holds this lock");
}

FileLock::~FileLock() { ::close(fd_); }

void write_file_atomic(const std::filesystem::path& path, std::string_view content) {
  AtomicFile file(path);
  file.write(content);
  file.commit();
}

}  // namespace zpp
