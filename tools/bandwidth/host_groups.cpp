#include "tools/bandwidth/host_groups.h"

#include <algorithm>
#include <fmt/format.h>
#include <string>
#include <utility>

#include "tools/bandwidth/host_measurement.h"
#include "tools/bandwidth/update_measurement.h"

namespace stagecoach {

namespace {

/// Where a group's threads run and its memory lies.
struct GroupPlace {
  ThreadPlace threads;
  std::shared_ptr<NodePlacement> memory;  ///< null: anywhere
  int thread_node = -1;                   ///< -1: any

  /// "/node0", "/node0/memory1", or nothing where nobody asked.
  std::string suffix() const {
    if (memory == nullptr) return "";
    std::string text = fmt::format("/node{}", thread_node);
    return memory->node() == thread_node ? text : text + fmt::format("/memory{}", memory->node());
  }
  void describe(Json& params) const {
    if (memory == nullptr) return;
    params["node"] = memory->node();
    params["thread_node"] = thread_node;
    params["is_local"] = memory->node() == thread_node;
  }
  /// Of the processors that threads may run on; 0: all there are.
  int most_threads() const { return static_cast<int>(threads.cpus.size()); }
};

std::vector<GroupPlace> group_places(const GroupBuilder& builder) {
  const NumaChoice* numa = builder.options().numa.get();
  if (numa == nullptr) return {GroupPlace{}};
  std::vector<GroupPlace> places;
  for (const HostPlace& one : numa->host_places()) {
    GroupPlace place;
    place.thread_node = one.thread_node;
    place.memory = numa->placement(one.memory_node);
    place.threads.cpus = numa->nodes.find(one.thread_node)->cpus;
    // On the only node there is nothing to bind to.
    if (numa->nodes.with_cpus().size() > 1) place.threads.binder = numa->binder;
    places.push_back(std::move(place));
  }
  return places;
}

void add_updates_at(GroupBuilder& builder, const GroupPlace& place) {
  BandwidthGroup group = builder.start("optim");
  group.settles = false;  // to no 2 %: threads share the machine
  int64_t count = builder.host_bytes(1) / kBytesOfAnUpdate;
  group.host_bytes = count * kBytesOfAnUpdate;
  auto arrays = std::make_shared<UpdateArrays>(count, place.memory);
  for (int threads : builder.thread_counts(place.most_threads())) {
    MeasurementInfo info;
    info.id = fmt::format("optim/adamw/threads{}{}", threads, place.suffix());
    info.group = "optim";
    info.params["rule"] = "adamw";
    info.params["threads"] = threads;
    info.params["parameters"] = count;
    place.describe(info.params);
    group.measurements.push_back(
        std::make_unique<UpdateMeasurement>(std::move(info), threads, arrays, place.threads));
  }
  builder.push(std::move(group));
}

void add_host_at(GroupBuilder& builder, const GroupPlace& place) {
  BandwidthGroup group = builder.start("host");
  group.settles = false;  // to no 2 %: threads share the machine
  constexpr int64_t kWarmUpNs = 500'000'000;
  group.sampling.warm_up_limit_ns = std::min(group.sampling.warm_up_limit_ns, kWarmUpNs);
  // A quick look takes half as much, and all threads alone.
  ByteCount size = builder.host_bytes(builder.is_full() ? 2 : 4);
  group.host_bytes = 2 * size;
  auto arrays = std::make_shared<HostArrays>(size, place.memory);
  std::vector<int> threads = builder.thread_counts(place.most_threads());
  if (!builder.is_full()) threads = {threads.back()};
  std::vector<HostKernel> kernels = {HostKernel::kRead, HostKernel::kWrite, HostKernel::kCopy,
                                     HostKernel::kConvert};
  if (builder.is_full()) {
    kernels.insert(kernels.end(), {HostKernel::kAccumulate, HostKernel::kTriad});
  }
  for (HostKernel kernel : kernels) {
    for (int count : threads) {
      MeasurementInfo info;
      info.id = fmt::format("host/{}/threads{}{}", host_kernel_name(kernel), count, place.suffix());
      info.group = "host";
      info.params["kernel"] = host_kernel_name(kernel);
      info.params["threads"] = count;
      info.params["size"] = size;
      info.params["dram_factor"] = host_pass_bytes(kernel, size).dram_factor();
      place.describe(info.params);
      group.measurements.push_back(
          std::make_unique<HostMeasurement>(std::move(info), kernel, count, arrays, place.threads));
    }
  }
  builder.push(std::move(group));
}

}  // namespace

void add_updates(GroupBuilder& builder) {
  for (const GroupPlace& place : group_places(builder)) add_updates_at(builder, place);
}

void add_host(GroupBuilder& builder) {
  for (const GroupPlace& place : group_places(builder)) add_host_at(builder, place);
}

}  // namespace stagecoach
