#pragma once

#include <cstdint>

#include "core/status.h"
#include "hal/device.h"

namespace stagecoach {

/// Waits until `timepoint`, of a stream of `device`, is reached; on simulated devices by letting
/// their time pass. Errors: the stream's; deadline exceeded once RealClock has passed
/// `deadline_ns`, naming what is held up. Never blocks in a driver.
Status await_timepoint(Device& device, Timepoint timepoint, int64_t deadline_ns);

}  // namespace stagecoach
