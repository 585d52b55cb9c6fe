#include "memory/pageable_memory.h"

#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <string>
#include <sys/mman.h>

#include "memory/host_limits.h"

namespace stagecoach {

Result<PageableMemory> PageableMemory::create(ByteCount size) {
  auto length = static_cast<size_t>(size);
  void* data = ::mmap(nullptr, length, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    const char* reason = std::strerror(errno);
    Result<HostLimits> limits = read_host_limits();
    std::string free_text = "how much is free is unknown";
    if (limits.is_ok()) {
      free_text = fmt::format("{} bytes are free by {}", limits->free_bytes, limits->free_source);
    }
    return resource_exhausted(fmt::format("{} ({} bytes) cannot be had: {}; {}", format_bytes(size),
                                          size, reason, free_text));
  }
  // Advice: a kernel without huge pages goes on with small ones.
  static_cast<void>(::madvise(data, length, MADV_HUGEPAGE));
  PageableMemory memory;
  memory.data_ = std::unique_ptr<std::byte, Unmap>(static_cast<std::byte*>(data), Unmap{length});
  return memory;
}

void PageableMemory::Unmap::operator()(std::byte* data) const {
  ::munmap(data, size);
}

}  // namespace stagecoach
