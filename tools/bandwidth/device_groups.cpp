#include "tools/bandwidth/device_groups.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "tools/bandwidth/compute_measurement.h"
#include "tools/bandwidth/pin_limit.h"
#include "tools/bandwidth/pin_measurement.h"

namespace stagecoach {

int64_t product_side(const DeviceInfo& device) {
  constexpr int64_t kCardSide = 8192, kMockSide = 64;
  return device.is_real_hardware ? kCardSide : kMockSide;
}

void add_compute(GroupBuilder& builder) {
  BandwidthGroup group = builder.start("compute");
  for (const MeasuredDevice& one : builder.devices()) {
    const DeviceInfo& device = one.device->info();
    if (one.device->virtual_time() != nullptr) continue;
    int64_t side = product_side(device);
    MeasurementInfo info;
    info.id = fmt::format("compute/{}/matmul/bf16/{}", device.id, side);
    info.group = "compute";
    info.params["device"] = device.id;
    info.params["op"] = "matmul";
    info.params["dtype"] = "bf16";
    info.params["side"] = side;
    group.measurements.push_back(
        std::make_unique<ComputeMeasurement>(std::move(info), *one.device, side));
  }
  builder.push(std::move(group));
}

void add_pin(GroupBuilder& builder) {
  BandwidthGroup group = builder.start("pin");
  for (const MeasuredDevice& one : builder.devices()) {
    Device& device = *one.device;
    if (device.virtual_time() != nullptr) continue;
    ByteCount size = builder.ring_bytes(device);
    for (MemoryKind kind : {MemoryKind::kHostPinned, MemoryKind::kHostRegistered}) {
      MeasurementInfo info;
      info.id = fmt::format("pin/{}/{}/{}", device.id(), memory_kind_name(kind), short_size(size));
      info.group = "pin";
      info.params = copy_params(device.id(), "none", kind, size);
      group.measurements.push_back(
          std::make_unique<PinMeasurement>(std::move(info), device, kind, size));
      group.pinned_bytes = std::max(group.pinned_bytes, size);
    }
  }
  group.sampling.min_time_ns = 0;
  group.sampling.warm_up_limit_ns = std::min<int64_t>(group.sampling.warm_up_limit_ns, 300'000'000);
  group.sampling.most_reruns = 0;
  builder.push(std::move(group));
  add_pin_limits(builder);
}

}  // namespace stagecoach
