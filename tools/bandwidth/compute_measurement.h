#pragma once

#include <memory>

#include "hal/hal.h"
#include "tools/bandwidth/measurement.h"

namespace stagecoach {

/// How fast a device multiplies square matrices of 16-bit numbers (bf16), by the device's own time.
/// A repeat is a product; "rate" is in TFLOP/s. Not for simulated devices.
class ComputeMeasurement final : public Measurement {
 public:
  /// `info` needs id, group and params; matrices are of `side` rows and columns.
  ComputeMeasurement(MeasurementInfo info, Device& device, int64_t side);

  Status prepare() override;
  Result<Batch> run(int64_t repeats, int64_t deadline_ns) override;

  Device& device() const { return device_; }
  /// Of a product.
  double flop() const;
  /// Enqueues a product, once prepared.
  Result<Timepoint> issue(Stream& stream);

 private:
  Result<TensorView> make_matrix();

  Device& device_;
  const int64_t side_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Event> start_, end_;
  std::vector<BufferHandle> buffers_;
  TensorView left_, right_, product_;
};

}  // namespace stagecoach
