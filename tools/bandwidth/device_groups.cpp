#include "tools/bandwidth/device_groups.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "tools/bandwidth/compute_measurement.h"
#include "tools/bandwidth/peer_measurement.h"
#include "tools/bandwidth/pin_limit.h"
#include "tools/bandwidth/pin_measurement.h"

namespace stagecoach {

namespace {

void add_peer(GroupBuilder& builder, BandwidthGroup& group, Device& source, Device& target) {
  ByteCount chunk = builder.options().sizes.empty()
                        ? std::min(builder.ring_bytes(source), builder.ring_bytes(target)) / 16
                        : builder.options().sizes.back();
  for (PeerRoute route : {PeerRoute::kDirect, PeerRoute::kStaged}) {
    MeasurementInfo info;
    info.id = fmt::format("p2p/{}/{}/{}/{}", source.id(), target.id(), peer_route_name(route),
                          short_size(chunk));
    info.group = "p2p";
    info.params["device"] = source.id();
    info.params["peer"] = target.id();
    info.params["route"] = peer_route_name(route);
    info.params["size"] = chunk;
    group.measurements.push_back(
        std::make_unique<PeerMeasurement>(std::move(info), source, target, route, chunk,
                                          builder.options().sampling.seed, builder.pool()));
    group.pinned_bytes += 12 * chunk;
  }
  // Silent corruption is what is looked for.
  if (group.sampling.verify == VerifyMode::kEnd) group.sampling.verify = VerifyMode::kEach;
}

}  // namespace

void add_compute(GroupBuilder& builder) {
  BandwidthGroup group = builder.start("compute");
  // Long enough to fill a card; a mock's pace is the same for any.
  constexpr int64_t kCardSide = 8192, kMockSide = 256;
  for (const MeasuredDevice& one : builder.devices()) {
    const DeviceInfo& device = one.device->info();
    if (one.device->virtual_time() != nullptr) continue;
    int64_t side = device.is_real_hardware ? kCardSide : kMockSide;
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

void add_peers(GroupBuilder& builder) {
  BandwidthGroup group = builder.start("p2p");
  for (const MeasuredDevice& from : builder.devices()) {
    for (const MeasuredDevice& to : builder.devices()) {
      bool is_pair =
          from.device != to.device && from.device->info().backend == to.device->info().backend;
      if (is_pair) add_peer(builder, group, *from.device, *to.device);
    }
  }
  if (group.measurements.empty()) {
    builder.note("copies between devices need two devices of one backend");
  }
  builder.push(std::move(group));
}

}  // namespace stagecoach
