#include "train/run_memory.h"

#include <algorithm>

#include "memory/activation_store.h"
#include "scheduler/network_state.h"
#include "scheduler/stage_executor.h"
#include "train/batch_staging.h"
#include "train/device_updater.h"

namespace stagecoach {

std::vector<ByteCount> home_boundaries(const Network& network, const MicroBatchShape& shape,
                                       const std::vector<Stage>& stages) {
  auto layer_count = static_cast<int>(network.layers.size());
  std::vector<bool> starts = stage_starts(stages, layer_count);
  std::vector<ByteCount> bytes(layer_count + 1, 0);
  for (int boundary = 1; boundary < layer_count; ++boundary) {
    if (starts[boundary]) bytes[boundary] = network.layers[boundary]->input().size_bytes(shape);
  }
  return bytes;
}

std::vector<ByteCount> home_boundaries(const Network& network, const MicroBatchShape& shape,
                                       const PlannedRun& run) {
  std::vector<ByteCount> bytes = home_boundaries(network, shape, run.training_plans.front().stages);
  std::vector<ByteCount> inference = home_boundaries(network, shape, run.inference_plan.stages);
  for (size_t boundary = 0; boundary < bytes.size(); ++boundary) {
    bytes[boundary] = std::max(bytes[boundary], inference[boundary]);
  }
  return bytes;
}

int batches_in_flight(UpdateMode update) {
  return update == UpdateMode::kBarrier ? 1 : static_cast<int>(StageExecutor::kPassesInFlight);
}

HostNeed host_need_before_planning(const Network& network, const PlanRequest& request,
                                   Residence residence) {
  HostNeed need;
  need.state = host_state_bytes(
      state_layouts(network),
      state_options(network, request.rounds, residence, request.update, request.moments));
  need.save_copies = request.save_copy_bytes;
  need.staging = batches_in_flight(request.update) *
                 BatchStaging::bytes(network, request.shape, request.micro_batches);
  return need;
}

HostNeed host_need(const Network& network, const PlanRequest& request, Residence residence,
                   const PlannedRun& run) {
  HostNeed need = host_need_before_planning(network, request, residence);
  need.boundaries =
      ActivationStore::bytes(home_boundaries(network, request.shape, run), request.micro_batches);
  for (size_t index = 0; index < run.devices.size(); ++index) {
    bool is_mock = request.devices[run.devices[index]].backend == "cpu";
    if (is_mock) need.devices += run.arena_bytes[index];
  }
  if (request.device_update_bytes == 0) return need;
  for (const DeviceInfo& device : request.devices) {
    need.staging += DeviceUpdater::host_bytes();
    if (device.backend == "cpu") need.devices += request.device_update_bytes;
  }
  return need;
}

ByteCount kept_gradient_bytes(const Network& network, int rounds) {
  if (rounds > 1) return 0;
  ByteCount bytes = 0;
  for (size_t block = 0; block < network.blocks.size(); ++block) {
    if (network.blocks[block].is_frozen) continue;
    bytes += Arena::padded(network.block_bytes(static_cast<int>(block), DType::kF32));
  }
  return bytes;
}

}  // namespace stagecoach
