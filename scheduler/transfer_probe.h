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
  int ring_chunks = 0;             ///< see BulkOptions; for bulk memory that is pageable
  /// Tells waiting for the copy engine from the copy: the first 4 KiB of an urgent copy go as one
  /// of their own, whose end is taken for the beginning of the rest, since an event before a copy
  /// does not wait for the engine. Another chunk may get between the two.
  bool splits = false;
  int64_t deadline_ns = 0;  ///< of RealClock; 0: none
};

/// Where the time of an urgent copy went.
struct UrgentTime {
  int64_t late_ns = 0;   ///< from its intended time until its thread called
  int64_t issue_ns = 0;  ///< the calls: what the driver takes, and whoever holds its locks
  int64_t queue_ns = 0;  ///< from then until the copy engine was there; 0 where copies are whole
  int64_t copy_ns = 0;   ///< the rest

  int64_t total_ns() const { return late_ns + issue_ns + queue_ns + copy_ns; }
};

/// Memory that a probe moves: equally long views of the device and of host memory, pinned but for
/// probes of pageable bulk.
struct ProbeMemory {
  BufferView bulk_on_device, bulk_on_host;
  BufferView urgent_on_device, urgent_on_host;
};

/// What a probe found.
struct TransferProbeResult {
  double bytes_per_s = 0;          ///< bulk and urgent, from the first byte to the last
  std::vector<UrgentTime> urgent;  ///< shortest first

  /// The time, from the intended moment to the end, that this share of the urgent copies did not
  /// exceed; 0 where there were none.
  int64_t urgent_at_ns(double share) const;
  /// The same of one part of it.
  int64_t part_at_ns(double share, int64_t UrgentTime::*part) const;
};

/// Runs a probe and returns when everything has landed: urgent copies are submitted by the calling
/// thread at their intended times, bulk before them by `BulkLane`. Times are the device's own.
/// Errors: the device's; deadline exceeded: what was submitted may still go on in the memory.
Result<TransferProbeResult> run_transfer_probe(Device& device, const ProbeMemory& memory,
                                               const TransferProbe& probe);

}  // namespace stagecoach
