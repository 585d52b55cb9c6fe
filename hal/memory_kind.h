#pragma once

#include <cstdint>
#include <string_view>

namespace stagecoach {

/// Where a buffer lives and who may touch it.
enum class MemoryKind : uint8_t {
  kDevice,          ///< Device memory: only copies and kernels of its device touch it.
  kHostPinned,      ///< Page-locked by the backend: the host and copy engines touch it.
  kHostRegistered,  ///< The caller's memory, page-locked in place.
  kHostPageable,    ///< Ordinary memory: copies work but block the issuing thread on real cards.
};

/// Whether the host may touch the bytes.
constexpr bool is_host(MemoryKind kind) {
  return kind != MemoryKind::kDevice;
}

/// "device", "pinned", "registered" or "pageable".
std::string_view memory_kind_name(MemoryKind kind);

}  // namespace stagecoach
