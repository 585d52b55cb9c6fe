#pragma once

#include "core/status.h"
#include "hal/device.h"

namespace stagecoach {

/// Pinned memory of `size` bytes that `allocation` asked `device` for. Where there is none:
/// resource exhausted, with what was asked for, what is free on the host and what ulimit -l allows;
/// what is free on the device is beside the point.
Result<BufferHandle> require_pinned(Allocation allocation, const Device& device, ByteCount size);

}  // namespace stagecoach
