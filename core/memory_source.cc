#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/pool.h"

namespace zpp {

namespace {

class HostMemory final : public MemorySource {
 public:
  size_t limit() const override {
    const long pages = sysconf(_SC_PHYS_PAGES);
    const long page = sysconf(_SC_PAGESIZE);
    const size_t bytes = static_cast<size_t>(pages) * static_cast<size_t>(page);
    return bytes / kGranule * kGranule;
  }

  void* reserve(size_t bytes) override {
    // One granule more than asked leaves room to align; the edges are given back.
    const size_t mapped = bytes + kGranule;
    void* raw =
        mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw == MAP_FAILED) {
      throw Error(Code::kOutOfMemory,
                  fmt::format("host memory: cannot reserve {} bytes of address space: {}; is it "
                              "limited (ulimit -v)?",
                              mapped, std::strerror(errno)));
    }
    const size_t skipped = (kGranule - reinterpret_cast<uintptr_t>(raw) % kGranule) % kGranule;
    char* data = static_cast<char*>(raw) + skipped;
    if (skipped > 0) munmap(raw, skipped);
    munmap(data + bytes, kGranule - skipped);
    return data;
  }

  bool commit(void* data, size_t bytes) noexcept override {
    if (mprotect(data, bytes, PROT_READ | PROT_WRITE) != 0) return false;
    // Refused where the kernel has no huge pages; small ones do as well then.
    madvise(data, bytes, MADV_HUGEPAGE);
    return true;
  }

  void release(void* data, size_t bytes) noexcept override { munmap(data, bytes); }
};

class CountedMemory final : public MemorySource {
 public:
  size_t limit() const override { return size_t{1} << 45; }

  void* reserve(size_t bytes) override {
    next_ += bytes;
    return reinterpret_cast<void*>(next_ - bytes);
  }
  bool commit(void*, size_t) noexcept override { return true; }
  void release(void*, size_t) noexcept override {}

 private:
  // No x86-64 process can have memory here: a use by mistake faults.
  uintptr_t next_ = uintptr_t{1} << 56;
};

}  // namespace

std::unique_ptr<MemorySource> host_memory() { return std::make_unique<HostMemory>(); }

std::unique_ptr<MemorySource> counted_memory() { return std::make_unique<CountedMemory>(); }

}  // namespace zpp
