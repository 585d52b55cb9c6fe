#pragma once

#include "hal/device.h"
#include "memory/pageable_memory.h"
#include "tools/bandwidth/measurement.h"

namespace stagecoach {

/// What it takes to get `size_bytes` of host memory that a device's copy engines reach, and to give
/// it back: "pin" and "free", in s/GiB. Pinned memory is the driver's; registered memory is
/// ordinary memory, touched before, that is page-locked in place.
class PinMeasurement final : public Measurement {
 public:
  /// `info` needs id, group and params.
  PinMeasurement(MeasurementInfo info, Device& device, MemoryKind kind, ByteCount size_bytes);

  Status prepare() override;
  Result<Batch> run(int64_t repeats, int64_t deadline_ns) override;
  int64_t most_repeats() const override { return 1; }

 private:
  Result<BufferHandle> pin();

  Device& device_;
  const MemoryKind kind_;
  const ByteCount size_bytes_;
  PageableMemory pages_;
};

}  // namespace stagecoach
