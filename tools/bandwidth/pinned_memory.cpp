#include "tools/bandwidth/pinned_memory.h"

#include <fmt/format.h>
#include <string>
#include <utility>

#include "memory/host_limits.h"

namespace stagecoach {

Result<BufferHandle> require_pinned(Allocation allocation, const Device& device, ByteCount size) {
  if (allocation.outcome != AllocationOutcome::kExhausted) {
    return require_buffer(std::move(allocation), device, size, "bandwidth");
  }
  std::string text = fmt::format("{} refuses {} ({} bytes) of pinned memory", device.id(),
                                 format_bytes(size), size);
  Result<HostLimits> limits = read_host_limits();
  if (!limits.is_ok()) return resource_exhausted(std::move(text));
  text += fmt::format("; {} bytes of host memory are free by {}", limits->free_bytes,
                      limits->free_source);
  if (limits->lockable_bytes.has_value()) {
    text += fmt::format(", {} may be locked by ulimit -l", *limits->lockable_bytes);
  }
  return resource_exhausted(std::move(text));
}

}  // namespace stagecoach
