#include "scheduler/planner.h"

#include <algorithm>
#include <numeric>

#include "scheduler/device_memory.h"
#include "scheduler/inference_planner.h"
#include "scheduler/network_profile.h"
#include "scheduler/schedules/roundpipe.h"
#include "scheduler/update_cost.h"

namespace stagecoach {

namespace {

/// Rates that make times of FLOP where nothing was measured: only their proportions count, so slow
/// ones, by which the smallest layers take more than the least time there is.
constexpr ProfileRates kAnyRates{1e9, 80e6};

/// Equal stages on all devices, in the order in which they were given.
Result<DevicePlan> plan_static(StepSetup setup, const StageSearchOptions& options) {
  ByteCount least = setup.devices.front().memory_bytes;
  for (const PlannedDevice& device : setup.devices) least = std::min(least, device.memory_bytes);
  for (PlannedDevice& device : setup.devices) {
    device.speed = 1;
    device.memory_bytes = least;
  }
  DevicePlan plan;
  STAGECOACH_ASSIGN_OR_RETURN(plan.planned, plan_stages(setup, options));
  plan.devices.resize(setup.devices.size());
  std::iota(plan.devices.begin(), plan.devices.end(), 0);
  double each = 1.0 / static_cast<double>(setup.devices.size());
  plan.shares.assign(setup.devices.size(), DeviceShare{true, each, ""});
  return plan;
}

/// A plan for each device the rotation may go on from; one where stages have their devices.
std::vector<Plan> make_training_plans(const SlotPlan& slots, const std::vector<int>& slot_devices,
                                      int devices, const PlanRequest& request) {
  std::vector<Plan> plans;
  if (request.is_static) {
    plans.push_back(make_roundpipe_plan(slots.stages, devices, request.micro_batches,
                                        request.rounds, 0, Dispatch::kStatic));
  } else if (slots.dispatch != SlotDispatch::kRotation) {
    plans.push_back(make_placed_plan(slots.stages, devices, request.micro_batches, request.rounds,
                                     slot_devices));
  } else {
    // A pass has S slots a round, so the next begins where this one ended.
    int64_t slot = 0;
    do {
      plans.push_back(make_roundpipe_plan(slots.stages, devices, request.micro_batches,
                                          request.rounds, slot, Dispatch::kRotation));
      slot = (slot + static_cast<int64_t>(slots.stages.size()) * request.rounds) % devices;
    } while (slot != 0);
  }
  return plans;
}

/// What any of the plans needs of each device.
std::vector<ByteCount> arena_bytes(const Network& network, const PlanRequest& request,
                                   const std::vector<Plan>& plans) {
  std::vector<StageLayout> layouts = layout_stages(network, plans.front(), request.shape, true);
  std::vector<ByteCount> bytes(static_cast<size_t>(plans.front().device_count()), 0);
  for (const Plan& plan : plans) {
    for (int device = 0; device < plan.device_count(); ++device) {
      DeviceMemory memory =
          carve_device_memory(plan, layouts, device, network.dtype != DType::kF32);
      bytes[device] = std::max(bytes[device], memory.need.total());
    }
  }
  return bytes;
}

/// Of what is free of a device, one part in so many stays free: libraries of devices take memory
/// when they are first used.
constexpr ByteCount kLeftFreeShare = 16;

/// Gives what is spare to parameters that stay on the device, as far as any plan uses it.
void plan_resident_bytes(const Network& network, const PlanRequest& request, PlannedRun& run) {
  const Plan& first = run.training_plans.front();
  std::vector<StageLayout> layouts = layout_stages(network, first, request.shape, true);
  for (size_t position = 0; position < run.devices.size(); ++position) {
    ByteCount free = request.free_bytes[static_cast<size_t>(run.devices[position])];
    ByteCount spare = free - run.arena_bytes[position];
    ResidencyLimits limits{std::max<ByteCount>(0, spare - free / kLeftFreeShare),
                           next_pass_begins_early(request.update)};
    ByteCount used = 0;
    for (const Plan& plan : run.training_plans) {
      ResidencyPlan kept = device_residency(plan, layouts, static_cast<int>(position), limits);
      used = std::max(used, kept.used_bytes);
    }
    run.resident_bytes.push_back(used);
    run.arena_bytes[position] += used;
  }
}

}  // namespace

StepSetup step_setup(const Network& network, const PlanRequest& request) {
  StepSetup setup;
  setup.micro_batches = request.micro_batches;
  setup.rounds = request.rounds;
  setup.update = request.update;
  setup.gated = request.gated;
  if (request.measured) {
    setup.layers = request.measured->layers;
    setup.devices = request.measured->devices;
  } else {
    ProfileRates rates = kAnyRates;
    rates.update_bytes_per_parameter =
        update_bytes_per_parameter(network.dtype, request.rounds, request.moments);
    setup.layers = profile_network(network, request.shape, rates);
    double fastest = 0;
    for (const DeviceInfo& info : request.devices) fastest = std::max(fastest, info.speed);
    for (const DeviceInfo& info : request.devices) {
      PlannedDevice device;
      device.speed = info.speed / fastest;
      setup.devices.push_back(std::move(device));
    }
  }
  for (size_t index = 0; index < setup.devices.size(); ++index) {
    setup.devices[index].name = request.devices[index].id;
    setup.devices[index].memory_bytes = request.free_bytes[index];
  }
  return setup;
}

Result<PlannedRun> plan_run(const Network& network, const PlanRequest& request) {
  StepSetup setup = step_setup(network, request);
  StageSearchOptions options;
  options.max_stage_layers = request.max_stage_layers;
  Result<DevicePlan> found =
      request.is_static ? plan_static(setup, options) : plan_for_devices(setup, options);
  if (!found.is_ok()) {
    if (found.status().code() != StatusCode::kResourceExhausted) return found.status();
    return does_not_fit(network, request,
                        request.is_static ? smallest_device(request) : largest_device(request));
  }
  PlannedRun run;
  run.devices = found->devices;
  run.shares = found->shares;
  run.slots = found->planned.slots;
  if (request.measured) run.predicted = found->planned.prediction;
  run.slot_devices = found->planned.prediction.devices;
  run.training_plans = make_training_plans(run.slots, run.slot_devices,
                                           static_cast<int>(run.devices.size()), request);
  run.arena_bytes = arena_bytes(network, request, run.training_plans);
  STAGECOACH_RETURN_IF_ERROR(plan_inference(network, request, run));
  if (request.residency) plan_resident_bytes(network, request, run);
  return run;
}

}  // namespace stagecoach
