#include "tools/bandwidth/overlap_groups.h"

#include <algorithm>
#include <fmt/format.h>
#include <string_view>
#include <utility>

#include "tools/bandwidth/device_groups.h"
#include "tools/bandwidth/host_measurement.h"
#include "tools/bandwidth/overlap_measurement.h"
#include "tools/bandwidth/overlap_shares.h"
#include "tools/bandwidth/update_measurement.h"

namespace stagecoach {

namespace {

/// What may take part, shared by all points of the grid.
struct OverlapStock {
  TransferMemories memories;
  ByteCount chunk_bytes = 0;
  std::shared_ptr<Measurement> convert, update;
  std::vector<std::shared_ptr<ComputeMeasurement>> products;
  int threads = 0;
};

OverlapStock stock_of(GroupBuilder& builder, BandwidthGroup& group) {
  OverlapStock stock;
  stock.memories = builder.memories(MemoryKind::kHostPinned, group);
  constexpr int kChunksOfRing = 16;
  for (const auto& memory : stock.memories) {
    ByteCount chunk = memory->ring_bytes() / kChunksOfRing;
    stock.chunk_bytes = stock.chunk_bytes > 0 ? std::min(stock.chunk_bytes, chunk) : chunk;
  }
  stock.threads = builder.pool().thread_count();
  constexpr int kArrays = 3;  // two to convert, one for all that an update touches
  ByteCount size = builder.host_bytes(kArrays);
  stock.convert = std::make_shared<HostMeasurement>(
      MeasurementInfo{}, HostKernel::kConvert, stock.threads, std::make_shared<HostArrays>(size));
  stock.update = std::make_shared<UpdateMeasurement>(
      MeasurementInfo{}, stock.threads, std::make_shared<UpdateArrays>(size / kBytesOfAnUpdate));
  for (const MeasuredDevice& one : builder.devices()) {
    stock.products.push_back(std::make_shared<ComputeMeasurement>(
        MeasurementInfo{}, *one.device, product_side(one.device->info())));
  }
  return stock;
}

void add_point(const GroupBuilder& builder, BandwidthGroup& group, const OverlapStock& stock,
               const OverlapPoint& point) {
  OverlapParts parts;
  parts.chunk_bytes = stock.chunk_bytes;
  if (point.host == "convert") parts.host = stock.convert;
  if (point.host == "update") parts.host = stock.update;
  for (LinkDirection direction : kBothDirections) {
    bool is_used = point.copies == "both" || point.copies == link_direction_name(direction);
    for (size_t device = 0; is_used && device < stock.memories.size(); ++device) {
      parts.flows.push_back(builder.flow(stock.memories, device, direction));
    }
  }
  if (point.compute == "matmul") parts.products = stock.products;
  MeasurementInfo info;
  info.id = point.id();
  info.group = "overlap";
  info.params["device"] = "all";
  info.params["host"] = point.host;
  info.params["dir"] = point.copies;
  info.params["compute"] = point.compute;
  info.params["kind"] = memory_kind_name(MemoryKind::kHostPinned);
  info.params["engine"] = "copy";
  info.params["size"] = stock.chunk_bytes;
  info.params["threads"] = parts.host ? stock.threads : 0;
  group.measurements.push_back(
      std::make_unique<OverlapMeasurement>(std::move(info), std::move(parts)));
}

}  // namespace

void add_overlap(GroupBuilder& builder) {
  for (const MeasuredDevice& one : builder.devices()) {
    if (one.device->virtual_time() == nullptr) continue;
    return builder.note("host threads do not run beside simulated devices: no overlap is measured");
  }
  BandwidthGroup group = builder.start("overlap");
  OverlapStock stock = stock_of(builder, group);
  for (const char* host : {"none", "convert", "update"}) {
    for (const char* copies : {"none", "up", "down", "both"}) {
      for (const char* compute : {"idle", "matmul"}) {
        OverlapPoint point{host, copies, compute};
        bool is_wanted = builder.is_full() ? !point.is_empty() : point.is_of_quick();
        if (is_wanted) add_point(builder, group, stock, point);
      }
    }
  }
  // Threads that share memory with copies settle to no 2 %.
  constexpr int64_t kWarmUpNs = 1'000'000'000;
  group.sampling.warm_up_limit_ns = std::min(group.sampling.warm_up_limit_ns, kWarmUpNs);
  group.settles = false;
  group.complete = add_kept_shares;
  builder.push(std::move(group));
}

}  // namespace stagecoach
