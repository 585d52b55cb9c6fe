#pragma once

#include <memory>
#include <vector>

#include "core/task_pool.h"
#include "hal/device.h"
#include "tools/bandwidth/measurement.h"

namespace stagecoach {

/// Copies inside the memory of one device, round a ring of four chunks: "payload" counts each byte
/// once, "dram" twice, as it is read and written: that is what the memory's specification says.
class LocalMeasurement final : public Measurement {
 public:
  /// `info` needs id, group and params; the device and the pool must outlive it.
  LocalMeasurement(MeasurementInfo info, Device& device, ByteCount chunk_bytes, uint64_t seed,
                   TaskPool& pool);

  Status prepare() override;
  Result<Batch> run(int64_t repeats, int64_t deadline_ns) override;
  Status poison() override;
  Result<DataCheck> check(int64_t deadline_ns) override;

 private:
  /// Simulated devices move nothing.
  bool holds_data() const { return device_.virtual_time() == nullptr; }
  BufferView source(ByteCount offset, ByteCount size) const;
  BufferView target(ByteCount offset, ByteCount size) const;
  Status copy_now(const CopyRequest& request, int64_t deadline_ns);

  Device& device_;
  const ByteCount chunk_bytes_;
  const uint64_t seed_;
  TaskPool& pool_;
  std::unique_ptr<Stream> stream_;
  BufferHandle memory_;  ///< the ring that is read, and behind it the one that is written
  BufferHandle pattern_, landing_;
  std::unique_ptr<Event> start_, end_;
  int64_t chunks_ = 0;  ///< of the last batch
};

}  // namespace stagecoach
