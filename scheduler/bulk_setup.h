#pragma once

#include <memory>

#include "core/status.h"
#include "hal/device.h"
#include "scheduler/bulk_lane.h"
#include "scheduler/lane_record.h"
#include "scheduler/measured_bulk.h"

namespace stagecoach {

/// How the bulk lanes of a run's devices are made.
struct BulkSetup {
  BulkMethod method = BulkMethod::kAlternating;
  /// Pinned memory of each lane through which pageable state travels; 0: none of it is pageable.
  ByteCount ring_bytes = 0;
  /// What was measured of the device; it stands above `method` and the rate of the link.
  MeasuredBulk measured;
};

/// So much for each lane of `device_count` devices, whose rings together stay within half of what
/// runs leave to the host (kHostReserve): they are not known when a run is admitted. Pure.
ByteCount ring_bytes_of_a_lane(int device_count);

/// The lane `kind` of a device: as measured, else chunks of what its link moves in 0.15 ms, as many
/// under way as the device bears. A ring is for devices whose copies run in hardware; where not all
/// of it can be pinned it is smaller, and where none can, there is none and copies of pageable
/// memory go as they are. `urgent` is the stream of the same direction's activations. Errors: those
/// of BulkLane.
Result<std::unique_ptr<BulkLane>> create_bulk_lane(Device& device, LaneKind kind,
                                                   const BulkSetup& setup, Stream& urgent);

}  // namespace stagecoach
