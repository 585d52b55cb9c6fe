#include "scheduler/bulk_setup.h"

#include <algorithm>

#include "memory/budget.h"

namespace stagecoach {

namespace {

/// Enough that host copies, whose chunk is one of them, and the link work at the same time.
constexpr int kRingChunks = 4;

}  // namespace

ByteCount ring_bytes_of_a_lane(int device_count) {
  constexpr ByteCount kMost = 32 * kMiB;
  return std::min(kMost, kHostReserve / 2 / (2 * device_count));
}

Result<std::unique_ptr<BulkLane>> create_bulk_lane(Device& device, LaneKind kind,
                                                   const BulkSetup& setup, Stream& urgent) {
  const DeviceInfo& info = device.info();
  bool goes_up = kind == LaneKind::kParameterUp;
  BulkOptions options;
  options.method = setup.method;
  options.chunk_bytes = bulk_chunk_bytes(goes_up ? info.up_bytes_per_s : info.down_bytes_per_s);
  if (setup.method == BulkMethod::kAlternating) options.ahead = info.bulk_chunks_ahead;
  if (const auto& measured = goes_up ? setup.measured.up : setup.measured.down; measured) {
    options.method = measured->method;
    options.chunk_bytes = measured->chunk_bytes;
    options.ahead = measured->ahead;
  }
  if (options.method == BulkMethod::kSharedStream) options.urgent = &urgent;
  bool runs_in_hardware = info.bulk_chunks_ahead > 0;
  if (setup.ring_bytes > 0 && runs_in_hardware && options.method != BulkMethod::kWhole) {
    // Below that a chunk's own costs outweigh its bytes.
    constexpr ByteCount kLeastChunk = 256 * kKiB;
    BulkOptions with_ring = options;
    with_ring.ring_chunks = kRingChunks;
    ByteCount chunk = std::min(options.chunk_bytes, setup.ring_bytes / kRingChunks);
    for (; chunk >= kLeastChunk; chunk /= 2) {
      with_ring.chunk_bytes = chunk;
      auto lane = BulkLane::create(device, lane_name(kind), with_ring);
      if (lane.is_ok() || lane.status().code() != StatusCode::kResourceExhausted) return lane;
    }
  }
  return BulkLane::create(device, lane_name(kind), options);
}

}  // namespace stagecoach
