#include "hal/copy.h"

namespace stagecoach {

CopyDirection copy_direction(const CopyRequest& request) {
  bool from_host = is_host(request.source.buffer->kind());
  bool to_host = is_host(request.target.buffer->kind());
  if (from_host) return to_host ? CopyDirection::kHostToHost : CopyDirection::kHostToDevice;
  return to_host ? CopyDirection::kDeviceToHost : CopyDirection::kDeviceToDevice;
}

std::string_view copy_direction_name(CopyDirection direction) {
  switch (direction) {
    case CopyDirection::kHostToDevice:
      return "upload";
    case CopyDirection::kDeviceToHost:
      return "download";
    case CopyDirection::kDeviceToDevice:
      return "device copy";
    case CopyDirection::kHostToHost:
      return "host copy";
  }
  return "unknown";
}

}  // namespace stagecoach
