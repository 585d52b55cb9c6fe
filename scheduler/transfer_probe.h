#pragma once

#include <cstdint>
#include <vector>

#include "core/status.h"
#include "hal/device.h"
#include "scheduler/bulk_lane.h"

namespace stagecoach {

/// What urgent copies take while bulk copies of the same direction are under way.
struct TransferProbe {
  bool up = true;  ///< host to device; else down
  BulkMethod method = BulkMethod::kAlternating;
  ByteCount chunk_bytes = bulk_chunk_bytes(0);
  int ahead = 0;                   ///< see BulkOptions
  ByteCount bulk_bytes = 0;        ///< in all: whole passes over the bulk memory, at least one
  int urgent_copies = 0;           ///< 0: bulk alone
  int64_t urgent_interval_ns = 0;  ///< between their intended times, which are jittered
  uint64_t seed = 1;               ///< of the jitter
};

/// Memory that a probe moves: equally long views of the device and of pinned host memory.
struct ProbeMemory {
  BufferView bulk_on_device, bulk_on_host;
  BufferView urgent_on_device, urgent_on_host;
};

/// What a probe found.
struct TransferProbeResult {
  double bytes_per_s = 0;  ///< bulk and urgent, from the first byte to the last
  /// From the intended time of each urgent copy to its end, shortest first.
  std::vector<int64_t> urgent_ns;

  /// The time that this share of the urgent copies did not exceed; 0 where there were none.
  int64_t urgent_at_ns(double share) const;
};

/// Runs a probe and returns when everything has landed: urgent copies are submitted by the calling
/// thread at their intended times, bulk before them by `BulkLane`. Times are the device's own.
/// Errors: the device's.
Result<TransferProbeResult> run_transfer_probe(Device& device, const ProbeMemory& memory,
                                               const TransferProbe& probe);

}  // namespace stagecoach
