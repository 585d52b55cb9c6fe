#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <numeric>

#include "scheduler/device_memory.h"
#include "scheduler/inference_planner.h"
#include "scheduler/partition.h"
#include "scheduler/planner.h"

namespace stagecoach {

namespace {

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
      "least {} bytes (memory=…){}, name more devices, {}use smaller micro-batches "
      "(train.microbatches) or a shorter data.sequence, or set schedule.kind = \"roundpipe\", "
      "which streams its stages",
      request.devices[device].id, format_bytes(request.free_bytes[device]),
      request.free_bytes[device], plan.schedule, count, format_bytes(need.total()), need.total(),
      format_bytes(need.parameter_bytes),
      format_bytes(need.gradient_bytes + 2 * need.rounded_bytes),
      format_bytes(need.kept_bytes + 2 * need.out_bytes + need.work_bytes), in_flight,
      network.layers[largest]->name(), most, needed + request.device_update_bytes,
      for_updates_there(request),
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
  for (const LayerProfile& layer : step_setup(network, request).layers) {
    costs.push_back(layer.forward_ns + layer.backward_ns);
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

/// Fills run.arena_bytes for training; evaluation by the narrowest stages must fit too.
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

Result<PlannedRun> plan_bound_run(const Network& network, const PlanRequest& request,
                                  const Schedule& schedule) {
  PlannedRun run;
  STAGECOACH_ASSIGN_OR_RETURN(Plan plan, make_bound_plan(network, request, schedule));
  run.devices.resize(request.devices.size());
  std::iota(run.devices.begin(), run.devices.end(), 0);
  run.recomputes = request.activations == ActivationPolicy::kRecompute;
  Status fits = size_bound_arenas(network, request, plan, run);
  if (!fits.is_ok() && request.activations == ActivationPolicy::kAuto) {
    run.recomputes = true;
    fits = size_bound_arenas(network, request, plan, run);
  }
  STAGECOACH_RETURN_IF_ERROR(fits);
  run.training_plans.push_back(std::move(plan));
  STAGECOACH_RETURN_IF_ERROR(plan_inference(network, request, run));
  return run;
}

}  // namespace stagecoach
