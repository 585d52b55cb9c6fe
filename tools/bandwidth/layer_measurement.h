#pragma once

#include <memory>
#include <vector>

#include "hal/op_rates.h"
#include "scheduler/single_layer.h"
#include "tools/bandwidth/measurement.h"

namespace stagecoach {

/// A layer to time, and what its passes work on. Plain data.
struct LayerSubject {
  std::shared_ptr<const Network> network;
  int layer = 0;
  MicroBatchShape shape;
  int64_t vocabulary = 0;
};

/// How long one pass of a layer takes on a device alone, by the device's own time ("time", ms), and
/// each of its operations among the others. A repeat is a pass; a batch ends with one in which
/// events stand between operations. What these cost is taken off: operations take as long together
/// as the pass does without events. Not for simulated devices.
class LayerMeasurement final : public Measurement {
 public:
  /// `info` needs id, group and params.
  LayerMeasurement(MeasurementInfo info, Device& device, LayerSubject subject, LayerPhase phase);

  Status prepare() override;
  Result<Batch> run(int64_t repeats, int64_t deadline_ns) override;
  /// {"ops": […]}: each operation with the median of its times, as read_timed_ops reads them.
  Json details() const override;

 private:
  Result<double> time_passes(int64_t repeats, int64_t deadline_ns);
  Status time_operations(double pass_ns, int64_t deadline_ns);

  Device& device_;
  const LayerSubject subject_;
  const LayerPhase phase_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<SingleLayer> layer_;
  std::vector<std::unique_ptr<Event>> events_;    ///< one more than operations
  std::vector<OpCall> calls_;                     ///< of a pass
  std::vector<std::vector<double>> op_times_ns_;  ///< per call
};

}  // namespace stagecoach
