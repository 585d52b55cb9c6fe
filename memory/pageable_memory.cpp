#include "memory/pageable_memory.h"

#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <sys/mman.h>

namespace stagecoach {

Result<PageableMemory> PageableMemory::create(ByteCount size) {
  auto length = static_cast<size_t>(size);
  void* data = ::mmap(nullptr, length, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return resource_exhausted(fmt::format("{} ({} bytes) cannot be had: {}", format_bytes(size),
                                          size, std::strerror(errno)));
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
