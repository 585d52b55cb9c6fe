#include "train/device_updates.h"

#include <algorithm>
#include <fmt/format.h>

#include "scheduler/device_share.h"
#include "train/optimizer.h"

namespace stagecoach {

namespace {

int64_t piece_elements(const Network& network) {
  int64_t largest = 1;
  for (const ParameterBlock& block : network.blocks) {
    if (!block.is_frozen) largest = std::max(largest, block.element_count);
  }
  return std::min(largest, DeviceUpdates::kPieceElements);
}

}  // namespace

ByteCount DeviceUpdates::bytes(const Network& network) {
  return DeviceUpdater::bytes(piece_elements(network));
}

UpdateTraffic DeviceUpdates::traffic(const Network& network, HostState& state, UpdateRule rule) {
  UpdateTraffic traffic;
  double all = 0, taken = 0;
  for (size_t index = 0; index < network.blocks.size(); ++index) {
    auto block = static_cast<int>(index);
    if (state.is_frozen(block)) continue;
    auto norm = static_cast<double>(gradient_bytes(state, block));
    traffic.host_norm += norm;
    traffic.host += norm + static_cast<double>(update_bytes(state, block, rule));
    auto elements = static_cast<double>(state.element_count(block));
    all += elements;
    if (!DeviceUpdater::takes(state.memory(block), rule)) continue;
    taken += elements;
    BlockBuffers buffers = state.buffers(block);
    bool is_split = !buffers.remainder.is_none();
    bool is_rounded = !is_split && buffers.compute_copy.size != buffers.master.size;
    ByteCount kept =
        is_split ? buffers.compute_copy.size + buffers.remainder.size : buffers.master.size;
    kept += buffers.first_moment.size + buffers.second_moment.size;
    traffic.up += static_cast<double>(kept + buffers.gradients.front().size);
    traffic.down += static_cast<double>(kept + (is_rounded ? buffers.compute_copy.size : 0));
  }
  if (taken == 0) return {};
  // A share is of all elements, whichever blocks stand in for those that devices do not take.
  traffic.up *= all / taken;
  traffic.down *= all / taken;
  return traffic;
}

Result<std::unique_ptr<DeviceUpdates>> DeviceUpdates::create(const std::vector<Device*>& devices,
                                                             const Network& network,
                                                             HostState& state, UpdateRule rule,
                                                             double share, TaskPool& pool) {
  std::unique_ptr<DeviceUpdates> updates(new DeviceUpdates());
  for (Device* device : devices) {
    if (device->virtual_time() != nullptr) {
      return unimplemented(
          fmt::format("device {} is simulated: set optimizer.device_share = 0", device->id()));
    }
    Part part;
    STAGECOACH_ASSIGN_OR_RETURN(part.updater,
                                DeviceUpdater::create(*device, piece_elements(network)));
    part.queue = std::make_unique<HostWorker>("updates on " + device->id(), pool);
    updates->parts_.push_back(std::move(part));
  }
  updates->choose(network, state, rule, share, static_cast<int>(devices.size()));
  return updates;
}

void DeviceUpdates::choose(const Network& network, HostState& state, UpdateRule rule, double share,
                           int devices) {
  std::vector<UpdateLoad> loads(network.blocks.size());
  double all = 0, chosen = 0;
  for (size_t index = 0; index < loads.size(); ++index) {
    auto block = static_cast<int>(index);
    if (state.is_frozen(block)) continue;
    loads[index] = {state.element_count(block), DeviceUpdater::takes(state.memory(block), rule)};
    all += static_cast<double>(loads[index].elements);
  }
  updating_devices_ = share_updates(loads, share, devices);
  for (size_t index = 0; index < loads.size(); ++index) {
    if (updating_devices_[index] >= 0) chosen += static_cast<double>(loads[index].elements);
  }
  share_ = all > 0 ? chosen / all : 0;
}

std::vector<DeviceUpdater*> DeviceUpdates::updaters() const {
  std::vector<DeviceUpdater*> updaters;
  for (const Part& part : parts_) updaters.push_back(part.updater.get());
  return updaters;
}

std::vector<HostQueue*> DeviceUpdates::queues() const {
  std::vector<HostQueue*> queues;
  for (const Part& part : parts_) queues.push_back(part.queue.get());
  return queues;
}

std::vector<Stream*> DeviceUpdates::streams() const {
  std::vector<Stream*> streams;
  for (const Part& part : parts_) {
    for (Stream* stream : part.updater->streams()) streams.push_back(stream);
  }
  return streams;
}

Status DeviceUpdates::status() const {
  for (const Part& part : parts_) STAGECOACH_RETURN_IF_ERROR(part.queue->status());
  return Status::ok();
}

void DeviceUpdates::set_trace(Trace& trace, int process, int first_track) {
  for (size_t index = 0; index < parts_.size(); ++index) {
    int track = first_track + static_cast<int>(index);
    trace.name_track(process, track, parts_[index].queue->name());
    parts_[index].queue->set_trace(&trace, process, track);
  }
}

}  // namespace stagecoach
