// Files as the rest of the code needs them: mapped for reading, replaced in one piece for writing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace zpp {

/// A regular file mapped read-only. An empty file maps to an empty span.
/// The file must not shrink while it is mapped.
class MappedFile {
 public:
  enum class Access { kSequential, kRandom };

  MappedFile() = default;
  /// Errors: kNotFound, kIo (with the name and the system's reason), kInvalidArgument if not a
  /// regular file.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const { return {data_, static_cast<size_t>(size_)}; }
  int64_t size() const { return size_; }
  const std::filesystem::path& path() const { return path_; }
  /// Tells the kernel how the pages will be visited. Only a hint: never fails.
  void advise(Access access) const;

 private:
  void unmap() noexcept;

  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  int64_t size_ = 0;
};

/// Whole content of a regular file; also of /proc files, whose size is not known beforehand.
/// Errors:  kNotFound, kIo, kInvalidArgument if it is a directory, pipe or device.
std::string read_file(const std::filesystem::path& path);

/// A file that appears under its name complete and durable, or not at all: bytes go to a temporary
/// file beside it, which commit() syncs and renames. Without commit() the destructor removes it.
class AtomicFile {
 public:
  /// Makes missing directories. Where `path` is a link, the file it names is replaced.
  /// Errors:  kIo; kInvalidArgument if something other than a regular file has the name.
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Appends.
  /// Errors:  kIo, naming the file.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  /// Overwrites bytes already written, for headers known only at the end.
  /// Errors:  kIo.
  void write_at(int64_t offset, std::span<const std::byte> bytes);
  /// Bytes appended so far.
  int64_t size() const { return size_; }
  const std::filesystem::path& path() const { return path_; }
  /// Errors: kIo; kFailedPrecondition when called twice.
  void commit();

 private:
  std::filesystem::path path_, temporary_;
  int fd_ = -1;
  int64_t size_ = 0;
};

/// An advisory lock on a file, made when missing, for as long as this lives; the system gives it back
/// when the process ends, however it ends.
class FileLock {
 public:
  /// Errors:  kInvalidArgument if another process (or another FileLock) holds it; kIo
  explicit FileLock(const std::filesystem::path& path);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int fd_ = -1;
};

/// Replaces the content of `path` in one piece (see AtomicFile).
/// Errors:  kIo.
void write_file_atomic(const std::filesystem::path& path, std::string_view content);

}  // namespace zpp
