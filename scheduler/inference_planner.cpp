#include "scheduler/inference_planner.h"

#include <algorithm>
#include <fmt/format.h>

#include "scheduler/device_memory.h"
#include "scheduler/partition.h"
#include "scheduler/schedules/roundpipe.h"

namespace stagecoach {

namespace {

/// Evaluation's devices, as positions in PlannedRun::devices: the fastest first, as many as are
/// worth waiting for the slowest of them in a rotation of equal stages. Only those that hold
/// `least` take part.
std::vector<int> inference_devices(const PlanRequest& request, const StepSetup& setup,
                                   const PlannedRun& run, ByteCount least) {
  auto speed = [&](int position) { return setup.devices[run.devices[position]].speed; };
  std::vector<int> positions;
  for (int position = 0; position < static_cast<int>(run.devices.size()); ++position) {
    if (request.free_bytes[run.devices[position]] >= least) positions.push_back(position);
  }
  std::stable_sort(positions.begin(), positions.end(),
                   [&](int left, int right) { return speed(left) > speed(right); });
  size_t best = 0;
  double most = 0;
  for (size_t count = 1; count <= positions.size(); ++count) {
    double rate = static_cast<double>(count) * speed(positions[count - 1]);
    if (rate < most) continue;
    most = rate;
    best = count;
  }
  positions.resize(best);
  return positions;
}

std::vector<Stage> single_forwards(const Network& network) {
  std::vector<Stage> stages;
  for (int layer = 0; layer < static_cast<int>(network.layers.size()); ++layer) {
    stages.push_back(Stage{ActionKind::kForward, layer, layer});
  }
  return stages;
}

}  // namespace

size_t smallest_device(const PlanRequest& request) {
  const std::vector<ByteCount>& free = request.free_bytes;
  return static_cast<size_t>(std::min_element(free.begin(), free.end()) - free.begin());
}

size_t largest_device(const PlanRequest& request) {
  const std::vector<ByteCount>& free = request.free_bytes;
  return static_cast<size_t>(std::max_element(free.begin(), free.end()) - free.begin());
}

std::string for_updates_there(const PlanRequest& request) {
  if (request.device_update_bytes == 0) return "";
  return fmt::format(", {} of them for updates there (optimizer.device_share)",
                     request.device_update_bytes);
}

Status does_not_fit(const Network& network, const PlanRequest& request, size_t device) {
  int layer_count = static_cast<int>(network.layers.size());
  std::vector<bool> starts(layer_count + 1, true);
  int largest = 0;
  DeviceMemoryNeed most;
  std::vector<Stage> single = narrowest_stages(layer_count);
  for (const Stage& stage : single) {
    if (stage.kind == ActionKind::kForward) continue;
    StageLayout layout = layout_stage(network, stage, starts, request.shape);
    DeviceMemoryNeed need = stage_memory_need(network, layout);
    bool more = need.total() > most.total() ||
                (need.total() == most.total() && stage.first_layer < largest);
    if (!more) continue;
    most = need;
    largest = stage.first_layer;
  }
  ByteCount needed = device_memory_need(network, single, request.shape).total();
  return resource_exhausted(fmt::format(
      "device {} has {} ({} bytes) for stage memory, but the smallest stages need {} ({} bytes); "
      "the "
      "largest layer, '{}', alone needs {} bytes: parameters {}, gradients {}, activations {}. "
      "Give the "
      "device at least {} bytes (memory=…){}, or use smaller micro-batches (train.microbatches) or "
      "a "
      "shorter data.sequence",
      request.devices[device].id, format_bytes(request.free_bytes[device]),
      request.free_bytes[device], format_bytes(needed), needed, network.layers[largest]->name(),
      most.total(), format_bytes(2 * most.parameter_bytes),
      format_bytes(most.gradient_buffers() * most.gradient_bytes + 2 * most.rounded_bytes),
      format_bytes(2 * (most.in_bytes + most.out_bytes) + most.work_bytes),
      needed + request.device_update_bytes, for_updates_there(request)));
}

Status plan_inference(const Network& network, const PlanRequest& request, PlannedRun& run) {
  StepSetup setup = step_setup(network, request);
  std::vector<Stage> narrowest = single_forwards(network);
  ByteCount least = device_memory_need(network, narrowest, request.shape).total();
  std::vector<int> positions = inference_devices(request, setup, run, least);
  if (positions.empty()) return does_not_fit(network, request, largest_device(request));
  ByteCount limit = request.free_bytes[run.devices[positions.front()]];
  for (int position : positions) {
    limit = std::min(limit, request.free_bytes[run.devices[position]]);
  }
  PartitionRequest partition;
  for (const LayerProfile& layer : setup.layers) {
    partition.forward_costs.push_back(layer.forward_ns);
  }
  partition.devices = static_cast<int>(positions.size());
  partition.micro_batches = request.micro_batches;
  partition.max_stage_layers = request.max_stage_layers;
  partition.fits = [&](const std::vector<Stage>& stages) {
    return device_memory_need(network, stages, request.shape).total() <= limit;
  };
  Result<std::vector<Stage>> found = partition_for_inference(partition);
  std::vector<Stage> stages = found.is_ok() ? std::move(found).value() : narrowest;
  Plan plan =
      make_roundpipe_plan(stages, static_cast<int>(positions.size()), request.micro_batches, 1, 0,
                          request.is_static ? Dispatch::kStatic : Dispatch::kRotation);
  // Everyone else has nothing to do.
  std::vector<std::vector<Action>> actions(run.devices.size());
  for (size_t index = 0; index < positions.size(); ++index) {
    actions[positions[index]] = std::move(plan.device_actions[index]);
  }
  plan.device_actions = std::move(actions);
  ByteCount needed = device_memory_need(network, plan.stages, request.shape).total();
  for (int position : positions) {
    run.arena_bytes[position] = std::max(run.arena_bytes[position], needed);
  }
  run.inference_plan = std::move(plan);
  return Status::ok();
}

}  // namespace stagecoach
