#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tools/bandwidth/compute_measurement.h"
#include "tools/bandwidth/measurement.h"
#include "tools/bandwidth/transfer_measurement.h"

namespace stagecoach {

/// What runs at the same time; at least one part. Measurements may be shared with others that run
/// at another time.
struct OverlapParts {
  std::shared_ptr<Measurement> host;  ///< its second quantity is GB/s of host memory; null: none
  std::vector<TransferFlow> flows;
  ByteCount chunk_bytes = 0;                                  ///< of copies
  std::vector<std::shared_ptr<ComputeMeasurement>> products;  ///< of devices, on streams apart
};

/// Host threads, copies and products of matrices that all go on until each has made some progress:
/// rates are those of the time in which all were active (common_window). First "memory", what host
/// threads and copies together move of host memory, in GB/s (not where products are alone); then
/// those of "host", "up", "down" (GB/s, of all devices) and "compute" (TFLOP/s, likewise) that take
/// part. A repeat is 5 ms. Not for simulated devices.
class OverlapMeasurement final : public Measurement {
 public:
  /// `info` needs id, group and params.
  OverlapMeasurement(MeasurementInfo info, OverlapParts parts);
  ~OverlapMeasurement() override;

  Status prepare() override;
  Result<Batch> run(int64_t repeats, int64_t deadline_ns) override;
  Status poison() override;
  Result<DataCheck> check(int64_t deadline_ns) override;

 private:
  struct Lane;
  class HostLoop;

  Status add_lane(Device& device, const std::string& part, double amount,
                  std::function<Result<Timepoint>(Stream&, int64_t)> issue);
  Status drive(HostLoop& host, int64_t wanted_ns, int64_t deadline_ns);
  Batch batch_of(const FlowMarks& host_marks) const;
  int64_t overrun_ns() const;
  int64_t slots(const TransferFlow& flow) const;

  const OverlapParts parts_;
  std::vector<std::unique_ptr<Lane>> lanes_;  ///< flows first, in their order
};

}  // namespace stagecoach
