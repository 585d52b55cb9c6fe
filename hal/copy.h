#pragma once

#include "core/label.h"
#include "hal/buffer.h"

namespace stagecoach {

/// Bytes to move from `source` to `target`, which are equally long and do not overlap.
/// Device to device on different devices of one backend goes peer to peer where enabled.
struct CopyRequest {
  BufferView target;
  BufferView source;
  Label label;
};

/// Repeats the low `pattern_size` bytes (1, 2 or 4) of `pattern` over `target`.
struct FillRequest {
  BufferView target;
  uint32_t pattern = 0;
  int pattern_size = 4;
  Label label;
};

/// Which way a copy goes; decides the copy engine.
enum class CopyDirection : uint8_t { kHostToDevice, kDeviceToHost, kDeviceToDevice, kHostToHost };

/// Direction of a request whose buffers are set.
CopyDirection copy_direction(const CopyRequest& request);

/// "upload", "download", "device copy" or "host copy".
std::string_view copy_direction_name(CopyDirection direction);

}  // namespace stagecoach
