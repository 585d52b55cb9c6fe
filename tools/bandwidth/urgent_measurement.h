#pragma once

#include <memory>

#include "scheduler/transfer_probe.h"
#include "tools/bandwidth/measurement.h"
#include "tools/bandwidth/transfer_memory.h"

namespace stagecoach {

/// How bulk copies leave room, and how much is urgent.
struct UrgentShape {
  LinkDirection direction = LinkDirection::kUp;
  BulkMethod method = BulkMethod::kAlternating;
  ByteCount chunk_bytes = 0;   ///< of bulk
  int ahead = 0;               ///< chunks issued, of kAlternating; 0: any number
  ByteCount urgent_bytes = 0;  ///< of an urgent copy
};

/// How long urgent copies take behind bulk copies of the same direction (scheduler/transfer_probe).
/// A repeat is an urgent copy, at a jittered time. "latency" is from the intended time to the end,
/// in ms; "wait" is its part after the call has returned, in which only the device is at work;
/// "total" is bulk and urgent in GB/s, "bulk_alone" what bulk reaches without urgent copies.
/// Not for simulated devices.
class UrgentMeasurement final : public Measurement {
 public:
  /// `info` needs id, group and params.
  UrgentMeasurement(MeasurementInfo info, std::shared_ptr<TransferMemory> memory,
                    const UrgentShape& shape);

  Status prepare() override;
  Result<Batch> run(int64_t repeats, int64_t deadline_ns) override;
  Status poison() override;
  Result<DataCheck> check(int64_t deadline_ns) override;
  int64_t most_repeats() const override;

 private:
  ProbeMemory probe_memory() const;
  ByteCount bulk_bytes() const;
  Status measure_bulk_alone(int64_t deadline_ns);

  const std::shared_ptr<TransferMemory> memory_;
  const UrgentShape shape_;
  double bytes_per_s_ = 0;  ///< of bulk alone; 0: not measured yet
  uint64_t next_seed_ = 1;
};

}  // namespace stagecoach
