#pragma once

#include <optional>

#include "core/bytes.h"
#include "scheduler/bulk_lane.h"

namespace stagecoach {

/// How bulk copies of one direction of a device travel best, as measured there: the rate of the
/// link kept, urgent copies in time.
struct MeasuredLane {
  BulkMethod method = BulkMethod::kAlternating;
  ByteCount chunk_bytes = 0;  ///< above 0
  int ahead = 0;              ///< see BulkOptions
  double urgent_p99_s = 0;    ///< what an urgent copy of a chunk's size took; 0: not measured

  bool operator==(const MeasuredLane&) const = default;
};

/// Both directions of a device; what was not measured is chosen by the rate of its link.
struct MeasuredBulk {
  std::optional<MeasuredLane> up, down;

  bool operator==(const MeasuredBulk&) const = default;
};

/// What was measured of a device that a run uses.
struct MeasuredLinks {
  double up_bytes_per_s = 0;  ///< with both directions in use; 0: not measured
  double down_bytes_per_s = 0;
  MeasuredBulk bulk;
};

}  // namespace stagecoach
