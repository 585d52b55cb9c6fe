#include "hal/memory_kind.h"

namespace stagecoach {

std::string_view memory_kind_name(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::kDevice:
      return "device";
    case MemoryKind::kHostPinned:
      return "pinned";
    case MemoryKind::kHostRegistered:
      return "registered";
    case MemoryKind::kHostPageable:
      return "pageable";
  }
  return "unknown";
}

}  // namespace stagecoach
