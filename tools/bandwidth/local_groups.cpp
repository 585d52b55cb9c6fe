#include "tools/bandwidth/local_groups.h"

#include <fmt/format.h>
#include <utility>

#include "tools/bandwidth/local_measurement.h"

namespace stagecoach {

void add_local(GroupBuilder& builder) {
  BandwidthGroup group = builder.start("local");
  constexpr int kChunksOfRing = 16, kPinnedChunks = 8;
  for (const MeasuredDevice& one : builder.devices()) {
    Device& device = *one.device;
    ByteCount chunk = builder.options().sizes.empty() ? builder.ring_bytes(device) / kChunksOfRing
                                                      : builder.options().sizes.back();
    MeasurementInfo info;
    info.id = fmt::format("local/{}/{}", device.id(), short_size(chunk));
    info.group = "local";
    info.params["device"] = device.id();
    info.params["engine"] = "copy";
    info.params["size"] = chunk;
    info.params["dram_factor"] = 2;
    group.measurements.push_back(std::make_unique<LocalMeasurement>(
        std::move(info), device, chunk, builder.options().sampling.seed, builder.pool()));
    group.pinned_bytes += kPinnedChunks * chunk;
  }
  builder.push(std::move(group));
}

}  // namespace stagecoach
