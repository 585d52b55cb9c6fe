#include "tools/bandwidth/transfer_groups.h"

#include <algorithm>
#include <fmt/format.h>
#include <iterator>
#include <utility>

#include "scheduler/bulk_chunk.h"
#include "tools/bandwidth/contention.h"
#include "tools/bandwidth/urgent_measurement.h"

namespace stagecoach {

namespace {

/// A quarter of the ring or less, so that chunks go round it.
std::vector<ByteCount> copy_sizes(const GroupBuilder& builder, ByteCount ring) {
  if (!builder.options().sizes.empty()) return builder.options().sizes;
  if (!builder.is_full()) return {ring / 256, ring / 16, ring / 4};
  std::vector<ByteCount> sizes;
  for (ByteCount size = 4 * kKiB; size <= ring / 4; size *= 4) sizes.push_back(size);
  return sizes;
}

/// What tells latency from rate.
std::vector<ByteCount> few_sizes(ByteCount ring) {
  std::vector<ByteCount> sizes = {4 * kKiB, 64 * kKiB, ring / 16};
  std::erase_if(sizes, [&](ByteCount size) { return size > ring / 16; });
  return sizes;
}

std::vector<MemoryKind> kinds(const GroupBuilder& builder) {
  if (!builder.options().kinds.empty()) return builder.options().kinds;
  if (!builder.is_full()) return {MemoryKind::kHostPinned};
  return {MemoryKind::kHostPinned, MemoryKind::kHostRegistered, MemoryKind::kHostPageable};
}

void add_copy(const GroupBuilder& builder, BandwidthGroup& group, const TransferMemories& all,
              size_t device, LinkDirection direction, ByteCount size, int depth,
              TransferEngine engine = TransferEngine::kCopy) {
  const std::string& name = builder.devices()[device].device->id();
  const char* dir = link_direction_name(direction);
  MemoryKind kind = all[device]->host_kind();
  MeasurementInfo info;
  info.id = fmt::format("copy/{}/{}/{}/{}", name, dir, memory_kind_name(kind), short_size(size));
  if (depth > 0) info.id += fmt::format("/depth{}", depth);
  if (engine == TransferEngine::kKernel) info.id += "/kernel";
  info.group = "copy";
  info.params = copy_params(name, dir, kind, size);
  info.params["engine"] = transfer_engine_name(engine);
  if (const NodePlacement* placement = all[device]->placement()) {
    info.id += fmt::format("/node{}", placement->node());
    info.params["is_local"] =
        builder.options().numa->is_local(placement->node(), builder.devices()[device].numa_node);
  }
  info.params["depth"] = depth > 0 ? Json(depth) : Json();
  group.measurements.push_back(std::make_unique<TransferMeasurement>(
      std::move(info), std::vector<TransferFlow>{builder.flow(all, device, direction)},
      TransferShape{size, depth, engine}));
}

/// Of pinned memory, by kernels: fewer sizes tell latency and rate.
void add_kernel_copies(GroupBuilder& builder, BandwidthGroup& group, const TransferMemories& all,
                       size_t device) {
  const DeviceInfo& info = builder.devices()[device].device->info();
  if (!info.kernels_reach_pinned) {
    return builder.note(fmt::format(
        "kernels of {} do not reach host memory: copies by kernels are left out", info.id));
  }
  std::vector<ByteCount> sizes = builder.options().sizes;
  if (sizes.empty()) sizes = few_sizes(all[device]->ring_bytes());
  for (LinkDirection direction : kBothDirections) {
    for (ByteCount size : sizes) {
      add_copy(builder, group, all, device, direction, size, 0, TransferEngine::kKernel);
    }
  }
}

void add_copy_depths(const GroupBuilder& builder, BandwidthGroup& group,
                     const TransferMemories& all, size_t device, LinkDirection direction,
                     ByteCount size) {
  if (builder.options().depths.empty()) add_copy(builder, group, all, device, direction, size, 0);
  for (int64_t depth : builder.options().depths) {
    add_copy(builder, group, all, device, direction, size, static_cast<int>(depth));
  }
}

void add_urgent_methods(GroupBuilder& builder, BandwidthGroup& group,
                        const std::shared_ptr<TransferMemory>& memory, LinkDirection direction) {
  const DeviceInfo& device = memory->device().info();
  double rate = direction == LinkDirection::kUp ? device.up_bytes_per_s : device.down_bytes_per_s;
  ByteCount usual = std::min(bulk_chunk_bytes(rate), memory->ring_bytes() / 8);
  struct Way {
    BulkMethod method;
    ByteCount chunk;
    int ahead;
  };
  std::vector<Way> ways = {{BulkMethod::kWhole, usual, 0}};
  for (ByteCount chunk : {usual / 2, usual, 2 * usual}) {
    ways.push_back({BulkMethod::kAlternating, chunk, device.bulk_chunks_ahead});
  }
  ways.push_back({BulkMethod::kSharedStream, usual, 0});
  ways.push_back({BulkMethod::kOneInFlight, usual, 0});
  for (const Way& way : ways) {
    std::string method = bulk_method_name(way.method);
    std::replace(method.begin(), method.end(), ' ', '_');
    const char* dir = link_direction_name(direction);
    MeasurementInfo info;
    info.id = fmt::format("urgent/{}/{}/{}/{}", device.id, dir, method, short_size(way.chunk));
    info.group = "urgent";
    info.params = copy_params(device.id, dir, MemoryKind::kHostPinned, usual);
    info.params["method"] = method;
    info.params["chunk"] = way.chunk;
    info.params["ahead"] = way.ahead;
    UrgentShape shape{direction, way.method, way.chunk, way.ahead, usual};
    group.measurements.push_back(
        std::make_unique<UrgentMeasurement>(std::move(info), memory, shape));
  }
}

/// For hosts that let nothing be pinned: one size of what else there is, in the place of `all`.
void add_fallback(const GroupBuilder& builder, BandwidthGroup& group, const TransferMemories& all) {
  if (builder.is_full() || !builder.options().kinds.empty()) return;
  for (MemoryKind kind : {MemoryKind::kHostRegistered, MemoryKind::kHostPageable}) {
    BandwidthGroup other = builder.start("copy");
    TransferMemories memories = builder.memories(kind, other);
    for (size_t device = 0; device < all.size(); ++device) {
      if (all[device] == nullptr) continue;
      for (LinkDirection direction : kBothDirections) {
        ByteCount size = builder.common_chunk(memories);
        add_copy_depths(builder, other, memories, device, direction, size);
      }
    }
    std::move(other.measurements.begin(), other.measurements.end(),
              std::back_inserter(group.fallback));
  }
}

/// Those of one kind of memory, on one node where that was asked for.
void add_copies_of(GroupBuilder& builder, BandwidthGroup group, const TransferMemories& all) {
  for (size_t device = 0; device < builder.devices().size(); ++device) {
    if (all[device] == nullptr) continue;
    ByteCount ring = all[device]->ring_bytes();
    std::vector<ByteCount> sizes = copy_sizes(builder, ring);
    bool is_pinned = all[device]->host_kind() == MemoryKind::kHostPinned;
    if (!is_pinned && builder.options().sizes.empty()) sizes = few_sizes(ring);
    if (is_pinned && builder.is_full()) add_kernel_copies(builder, group, all, device);
    for (LinkDirection direction : kBothDirections) {
      for (ByteCount size : sizes) add_copy_depths(builder, group, all, device, direction, size);
    }
  }
  add_fallback(builder, group, all);
  builder.push(std::move(group));
}

}  // namespace

void add_copies(GroupBuilder& builder) {
  for (MemoryKind kind : kinds(builder)) {
    std::vector<int> nodes = builder.copy_nodes();
    for (int node : nodes) {
      BandwidthGroup group = builder.start("copy");
      TransferMemories all = builder.memories_on(node, kind, group);
      add_copies_of(builder, std::move(group), all);
    }
    if (!nodes.empty()) continue;
    BandwidthGroup group = builder.start("copy");
    TransferMemories all = builder.memories(kind, group);
    add_copies_of(builder, std::move(group), all);
  }
}

void add_duplex(GroupBuilder& builder) {
  BandwidthGroup group = builder.start("duplex");
  TransferMemories all = builder.memories(MemoryKind::kHostPinned, group);
  ByteCount size = builder.common_chunk(all);
  for (size_t device = 0; device < builder.devices().size(); ++device) {
    const std::string& name = builder.devices()[device].device->id();
    MeasurementInfo info;
    info.id = fmt::format("duplex/{}/pinned/{}", name, short_size(size));
    info.group = "duplex";
    info.params = copy_params(name, "both", MemoryKind::kHostPinned, size);
    std::vector<TransferFlow> flows = {builder.flow(all, device, LinkDirection::kUp),
                                       builder.flow(all, device, LinkDirection::kDown)};
    group.measurements.push_back(std::make_unique<TransferMeasurement>(
        std::move(info), std::move(flows), TransferShape{size, 0}));
  }
  builder.push(std::move(group));
}

void add_together(GroupBuilder& builder) {
  if (builder.devices().size() < 2) return;
  BandwidthGroup group = builder.start("together");
  TransferMemories all = builder.memories(MemoryKind::kHostPinned, group);
  ByteCount size = builder.common_chunk(all);
  for (const char* dir : {"up", "down", "both"}) {
    std::vector<TransferFlow> flows;
    for (LinkDirection direction : kBothDirections) {
      bool is_wanted =
          std::string("both") == dir || link_direction_name(direction) == std::string(dir);
      for (size_t device = 0; is_wanted && device < builder.devices().size(); ++device) {
        flows.push_back(builder.flow(all, device, direction));
      }
    }
    MeasurementInfo info;
    info.id = fmt::format("together/{}/pinned/{}", dir, short_size(size));
    info.group = "together";
    info.params = copy_params("all", dir, MemoryKind::kHostPinned, size);
    group.measurements.push_back(std::make_unique<TransferMeasurement>(
        std::move(info), std::move(flows), TransferShape{size, 0}));
  }
  builder.push(std::move(group));
}

void add_contention(GroupBuilder& builder) {
  if (std::ssize(builder.devices()) > kMostFittedDevices) {
    builder.note(
        fmt::format("contention is measured for at most {} devices; these are "
                    "{}: name fewer with --devices",
                    kMostFittedDevices, builder.devices().size()));
    return;
  }
  for (LinkDirection direction : kBothDirections) {
    BandwidthGroup group = builder.start("contention");
    TransferMemories all = builder.memories(MemoryKind::kHostPinned, group);
    TransferShape shape{builder.common_chunk(all), 0};
    group.ids = {fmt::format("contention/{}", link_direction_name(direction))};
    // Fewer repetitions of each: there are many sets.
    group.sampling.min_time_ns = std::min<int64_t>(group.sampling.min_time_ns, 100'000'000);
    // Each alone, all together, and what the curves add.
    group.run_count = 2 * std::ssize(builder.devices());
    group.run = [all = std::move(all), direction, shape](const RepetitionOptions& sampling,
                                                         BandwidthReport& report) {
      run_contention(all, direction, shape, sampling, report);
    };
    builder.push(std::move(group));
  }
}

void add_urgent(GroupBuilder& builder) {
  BandwidthGroup group = builder.start("urgent");
  TransferMemories all = builder.memories(MemoryKind::kHostPinned, group);
  for (size_t device = 0; device < builder.devices().size(); ++device) {
    if (builder.devices()[device].device->virtual_time() != nullptr) continue;
    for (LinkDirection direction : kBothDirections) {
      add_urgent_methods(builder, group, all[device], direction);
    }
  }
  // Latencies differ from each other by nature, and many are needed.
  group.sampling.cv_limit = 1e9;
  group.settles = false;
  group.sampling.batch_time_ns = std::max<int64_t>(group.sampling.batch_time_ns, 100'000'000);
  builder.push(std::move(group));
}

}  // namespace stagecoach
