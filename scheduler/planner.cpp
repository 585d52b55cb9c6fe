#include "scheduler/planner.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "scheduler/device_memory.h"

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

PartitionRequest partition_request(const Network& network, const PlanRequest& request,
                                   ByteCount limit) {
  PartitionRequest partition;
  partition.layers = flop_costs(network, request.shape);
  partition.devices = static_cast<int>(request.devices.size());
  partition.micro_batches = request.micro_batches;
  partition.max_stage_layers = request.max_stage_layers;
  partition.fits = [&network, &request, limit](const std::vector<Stage>& stages) {
    return device_memory_need(network, stages, request.shape).total() <= limit;
  };
  return partition;
}

size_t smallest_device(const PlanRequest& request) {
  const std::vector<ByteCount>& free = request.free_bytes;
  return static_cast<size_t>(std::min_element(free.begin(), free.end()) - free.begin());
}

/// Plans evaluation and raises arenas to what it needs.
Status plan_inference(const Network& network, const PlanRequest& request,
                      PartitionRequest partition, PlannedRun& run) {
  Result<std::vector<Stage>> stages = partition_for_inference(partition);
  if (!stages.is_ok()) {
    // Training stages fit, so their forward cuts do, layer by layer at worst.
    partition.max_stage_layers = 1;
    stages = partition_for_inference(partition);
    if (!stages.is_ok()) return does_not_fit(network, request, smallest_device(request));
  }
  run.inference_stages = std::move(stages).value();
  ByteCount needed = device_memory_need(network, run.inference_stages, request.shape).total();
  for (ByteCount& bytes : run.arena_bytes) bytes = std::max(bytes, needed);
  return Status::ok();
}

/// Most micro-batches whose activations the device holds at once, over all its stages.
int most_in_flight(const Plan& plan, int device) {
  int now = 0, most = 0;
  for (const Action& action : plan.device_actions[device]) {
    ActionKind kind = plan.stage_of(action).kind;
    if (runs_forward(kind)) most = std::max(most, ++now);
    if (makes_weight_gradient(kind)) --now;
  }
  return most;
}

/// Names the device, and of its layers the one that takes most. `needed` is what would do.
Status bound_does_not_fit(const Network& network, const PlanRequest& request, const Plan& plan,
                          int device, const DeviceMemoryNeed& need, ByteCount needed,
                          bool recomputes) {
  int in_flight = most_in_flight(plan, device);
  std::vector<bool> is_here(network.layers.size(), false);
  for (const Action& action : plan.device_actions[device]) {
    const Stage& stage = plan.stage_of(action);
    for (int layer = stage.first_layer; layer <= stage.last_layer; ++layer) is_here[layer] = true;
  }
  int largest = 0, count = 0;
  ByteCount most = 0;
  for (int layer = 0; layer < static_cast<int>(network.layers.size()); ++layer) {
    if (!is_here[layer]) continue;
    ++count;
    ByteCount bytes =
        (recomputes ? 1 : in_flight) * network.layers[layer]->memory(request.shape).saved_bytes;
    for (const BlockUse& use : network.layers[layer]->uses()) {
      bytes += network.block_bytes(use.block, network.dtype) +
               network.block_bytes(use.block, DType::kF32);
    }
    if (bytes <= most) continue;
    most = bytes;
    largest = layer;
  }
  return resource_exhausted(fmt::format(
      "device {} has {} ({} bytes) for stage memory, but schedule {} binds {} layers to it, which "
      "need {} ({} bytes): parameters {}, gradients {}, activations {} with up to {} micro-batches "
      "of a stage in flight; the largest layer, '{}', takes {} bytes of it. Give the device at "
      "least {} bytes (memory=…), name more devices, {}use smaller micro-batches "
      "(train.microbatches) or a shorter data.sequence, or set schedule.kind = \"roundpipe\", "
      "which streams its stages",
      request.devices[device].id, format_bytes(request.free_bytes[device]),
      request.free_bytes[device], plan.schedule, count, format_bytes(need.total()), need.total(),
      format_bytes(need.parameter_bytes),
      format_bytes(need.gradient_bytes + 2 * need.rounded_bytes),
      format_bytes(need.kept_bytes + 2 * need.out_bytes + need.work_bytes), in_flight,
      network.layers[largest]->name(), most, needed,
      request.activations == ActivationPolicy::kKeep ? "set activations.policy = \"auto\", " : ""));
}

/// ", where train.microbatches = 6 or 9 would do" for the nearest sizes the schedule takes.
std::string allowed_sizes_hint(const Schedule& schedule, ScheduleParameters parameters) {
  int wanted = parameters.micro_batches, furthest = 2 * parameters.stages;
  std::vector<int> near;
  for (int step : {-1, 1}) {
    for (int distance = 1; distance <= furthest; ++distance) {
      parameters.micro_batches = wanted + step * distance;
      if (parameters.micro_batches < 1 || !make_plan(schedule, parameters).is_ok()) continue;
      near.push_back(parameters.micro_batches);
      break;
    }
  }
  if (near.empty()) return "";
  return fmt::format(", where train.microbatches = {} would do", fmt::join(near, " or "));
}

Result<Plan> make_bound_plan(const Network& network, const PlanRequest& request,
                             const Schedule& schedule) {
  ScheduleParameters parameters;
  parameters.stages = static_cast<int>(request.devices.size());
  parameters.micro_batches = request.micro_batches;
  int chunks = schedule_chunks(schedule, parameters);
  int stages = parameters.stages * chunks;
  int layers = static_cast<int>(network.layers.size());
  if (stages > layers) {
    return invalid_argument(fmt::format(
        "schedule {} cuts the model into {} stages ({} devices, {} on each), but it has {} layers; "
        "name {} devices or fewer, or set schedule.kind = \"roundpipe\"",
        schedule.name, stages, parameters.stages, chunks, layers, std::max(1, layers / chunks)));
  }
  std::vector<double> costs;
  for (const LayerCost& cost : flop_costs(network, request.shape)) {
    costs.push_back(cost.fused_backward);
  }
  parameters.layers = partition_evenly(costs, stages);
  Result<Plan> plan = make_plan(schedule, parameters);
  if (!plan.is_ok()) {
    return plan.status().with_context(fmt::format("schedule.kind = \"{}\" on {} devices{}",
                                                  schedule.name, parameters.stages,
                                                  allowed_sizes_hint(schedule, parameters)));
  }
  plan->rounds = request.rounds;
  return plan;
}

/// Fills run.arena_bytes for training, and for evaluation by the narrowest stages.
Status size_bound_arenas(const Network& network, const PlanRequest& request, const Plan& plan,
                         PlannedRun& run) {
  std::vector<Stage> narrowest;
  for (int layer = 0; layer < static_cast<int>(network.layers.size()); ++layer) {
    narrowest.push_back(Stage{ActionKind::kForward, layer, layer});
  }
  ByteCount inference = device_memory_need(network, narrowest, request.shape).total();
  std::vector<StageLayout> layouts = layout_stages(network, plan, request.shape, run.recomputes);
  run.arena_bytes.clear();
  for (int device = 0; device < plan.device_count(); ++device) {
    DeviceMemoryNeed need =
        carve_device_memory(plan, layouts, device, network.dtype != DType::kF32).need;
    ByteCount needed = std::max(need.total(), inference);
    if (needed > request.free_bytes[device]) {
      return bound_does_not_fit(network, request, plan, device, need, needed, run.recomputes);
    }
    run.arena_bytes.push_back(need.total());
  }
  return Status::ok();
}

}  // namespace

Result<PlannedRun> plan_run(const Network& network, const PlanRequest& request) {
  size_t smallest = smallest_device(request);
  PartitionRequest partition = partition_request(network, request, request.free_bytes[smallest]);
  PlannedRun run;
  Result<std::vector<Stage>> training = partition_for_training(partition);
  if (!training.is_ok()) return does_not_fit(network, request, smallest);
  run.training_stages = std::move(training).value();
  ByteCount needed = device_memory_need(network, run.training_stages, request.shape).total();
  run.arena_bytes.assign(request.devices.size(), needed);
  STAGECOACH_RETURN_IF_ERROR(plan_inference(network, request, std::move(partition), run));
  return run;
}

Result<PlannedRun> plan_bound_run(const Network& network, const PlanRequest& request,
                                  const Schedule& schedule) {
  PlannedRun run;
  STAGECOACH_ASSIGN_OR_RETURN(Plan plan, make_bound_plan(network, request, schedule));
  run.training_stages = plan.stages;
  run.recomputes = request.activations == ActivationPolicy::kRecompute;
  Status fits = size_bound_arenas(network, request, plan, run);
  if (!fits.is_ok() && request.activations == ActivationPolicy::kAuto) {
    run.recomputes = true;
    fits = size_bound_arenas(network, request, plan, run);
  }
  STAGECOACH_RETURN_IF_ERROR(fits);
  ByteCount limit = request.free_bytes[smallest_device(request)];
  STAGECOACH_RETURN_IF_ERROR(
      plan_inference(network, request, partition_request(network, request, limit), run));
  run.bound_plan = std::move(plan);
  return run;
}

}  // namespace stagecoach
