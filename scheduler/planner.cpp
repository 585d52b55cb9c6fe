#include "scheduler/planner.h"

#include <algorithm>
#include <fmt/format.h>

namespace stagecoach {

namespace {

std::vector<LayerCost> flop_costs(const Network& network, const MicroBatchShape& shape) {
  std::vector<LayerCost> costs;
  for (const auto& layer : network.layers) {
    LayerFlop flop = layer->flop(shape);
    double backward = flop.backward_input + flop.backward_weight;
    costs.push_back({flop.forward, flop.recompute + backward, flop.forward + backward});
  }
  return costs;
}

/// Names the layer whose stage needs the most when every layer is a stage of its own.
Status does_not_fit(const Network& network, const PlanRequest& request, size_t device) {
  int layer_count = static_cast<int>(network.layers.size());
  std::vector<bool> starts(layer_count + 1, true);
  int largest = 0;
  DeviceMemoryNeed most;
  for (int layer = 0; layer < layer_count; ++layer) {
    ActionKind kind =
        layer + 1 == layer_count ? ActionKind::kForwardBackward : ActionKind::kBackward;
    StageLayout layout = layout_stage(network, Stage{kind, layer, layer}, starts, request.shape);
    DeviceMemoryNeed need = stage_memory_need(network, layout);
    if (need.total() <= most.total()) continue;
    most = need;
    largest = layer;
  }
  std::vector<Stage> single;
  for (int layer = 0; layer + 1 < layer_count; ++layer) {
    single.push_back(Stage{ActionKind::kForward, layer, layer});
  }
  single.push_back(Stage{ActionKind::kForwardBackward, layer_count - 1, layer_count - 1});
  for (int layer = layer_count - 2; layer >= 0; --layer) {
    single.push_back(Stage{ActionKind::kBackward, layer, layer});
  }
  ByteCount needed = device_memory_need(network, single, request.shape).total();
  return resource_exhausted(fmt::format(
      "device {} has {} ({} bytes) for stage memory, but the smallest stages need {} ({} bytes); "
      "the "
      "largest layer, '{}', alone needs {} bytes: parameters {}, gradients {}, activations {}. "
      "Give the "
      "device at least {} bytes (memory=…), or use smaller micro-batches (train.microbatches) or a "
      "shorter data.sequence",
      request.devices[device].id, format_bytes(request.free_bytes[device]),
      request.free_bytes[device], format_bytes(needed), needed, network.layers[largest]->name(),
      most.total(), format_bytes(2 * most.parameter_bytes),
      format_bytes(most.gradient_buffers() * most.gradient_bytes + 2 * most.rounded_bytes),
      format_bytes(2 * (most.in_bytes + most.out_bytes) + most.work_bytes), needed));
}

}  // namespace

Result<PlannedRun> plan_run(const Network& network, const PlanRequest& request) {
  size_t smallest =
      static_cast<size_t>(std::min_element(request.free_bytes.begin(), request.free_bytes.end()) -
                          request.free_bytes.begin());
  ByteCount limit = request.free_bytes[smallest];
  PartitionRequest partition;
  partition.layers = flop_costs(network, request.shape);
  partition.devices = static_cast<int>(request.devices.size());
  partition.micro_batches = request.micro_batches;
  partition.max_stage_layers = request.max_stage_layers;
  partition.fits = [&](const std::vector<Stage>& stages) {
    return device_memory_need(network, stages, request.shape).total() <= limit;
  };
  PlannedRun run;
  Result<std::vector<Stage>> training = partition_for_training(partition);
  if (!training.is_ok()) return does_not_fit(network, request, smallest);
  run.training_stages = std::move(training).value();
  Result<std::vector<Stage>> inference = partition_for_inference(partition);
  if (!inference.is_ok()) {
    // Training stages fit, so their forward cuts do, layer by layer at worst.
    partition.max_stage_layers = 1;
    inference = partition_for_inference(partition);
    if (!inference.is_ok()) return does_not_fit(network, request, smallest);
  }
  run.inference_stages = std::move(inference).value();
  run.arena_bytes =
      std::max(device_memory_need(network, run.training_stages, request.shape).total(),
               device_memory_need(network, run.inference_stages, request.shape).total());
  return run;
}

}  // namespace stagecoach
