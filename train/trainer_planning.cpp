// How a run is planned: before it begins, and anew from what it has measured.
#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "scheduler/network_state.h"
#include "scheduler/plan_validation.h"
#include "scheduler/schedules/schedule.h"
#include "train/run_memory.h"
#include "train/trainer_impl.h"

namespace stagecoach {

Status Trainer::Impl::prepare_request() {
  if (options.device_share > 0) request.device_update_bytes = DeviceUpdates::bytes(network);
  for (Device* device : devices) {
    STAGECOACH_ASSIGN_OR_RETURN(MemoryUsage usage, device->memory_usage());
    DeviceInfo info = device->info();
    if (!options.measured.empty()) {
      const MeasuredLinks& measured = options.measured[request.devices.size()];
      if (measured.up_bytes_per_s > 0) info.up_bytes_per_s = measured.up_bytes_per_s;
      if (measured.down_bytes_per_s > 0) info.down_bytes_per_s = measured.down_bytes_per_s;
    }
    request.devices.push_back(std::move(info));
    ByteCount free = usage.total_bytes - usage.used_bytes;
    if (free < request.device_update_bytes) {
      return resource_exhausted(fmt::format(
          "device {} has {} free; updates there take {}: set optimizer.device_share = 0",
          device->id(), format_bytes(free), format_bytes(request.device_update_bytes)));
    }
    request.free_bytes.push_back(free - request.device_update_bytes);
    used_before.push_back(usage.used_bytes + request.device_update_bytes);
  }
  request.shape = shape;
  request.micro_batches = static_cast<int>(options.micro_batches);
  request.rounds = static_cast<int>(options.rounds);
  request.max_stage_layers = static_cast<int>(options.max_stage_layers);
  request.is_static = options.dispatch == "static";
  STAGECOACH_ASSIGN_OR_RETURN(request.update, parse_update_mode(options.update));
  request.gated = updates_wait_for_norm(options, network.dtype);
  request.moments = moments;
  request.save_copy_bytes = options.save_copy_bytes;
  request.residency = options.residency == "auto";
  if (options.activations == "keep") request.activations = ActivationPolicy::kKeep;
  if (options.activations == "recompute") request.activations = ActivationPolicy::kRecompute;
  return Status::ok();
}

Result<PlannedRun> Trainer::Impl::make_plan() const {
  PlannedRun run;
  if (binds_stages(options.schedule)) {
    STAGECOACH_ASSIGN_OR_RETURN(const Schedule* schedule, find_schedule(options.schedule));
    STAGECOACH_ASSIGN_OR_RETURN(run, plan_bound_run(network, request, *schedule));
  } else {
    STAGECOACH_ASSIGN_OR_RETURN(run, plan_run(network, request));
  }
  int layer_count = static_cast<int>(network.layers.size());
  for (const Plan& plan : run.training_plans) {
    STAGECOACH_RETURN_IF_ERROR(validate_plan(plan, layer_count, false));
  }
  STAGECOACH_RETURN_IF_ERROR(validate_plan(run.inference_plan, layer_count, true));
  return run;
}

Residence Trainer::Impl::residence() const {
  return binds_stages(options.schedule) ? Residence::kBound : Residence::kStreamed;
}

/// Refuses a plan that the host had no memory for when the run began, rather than being killed in
/// the middle of it.
Status Trainer::Impl::check_host(const PlannedRun& run) const {
  return check_host_need(host_need(network, request, residence(), run), limits);
}

/// Gives devices the memory of a plan and runs by it from now on.
Status Trainer::Impl::adopt(PlannedRun next) {
  if (executor) {
    STAGECOACH_RETURN_IF_ERROR(executor->finish_reading());
    reading_wait_ns += executor->reading_wait_ns();
  }
  executor.reset();
  store.reset();
  planned = std::move(next);
  passes_of_plan = 0;
  last_pass.reset();
  steps_ns.clear();
  std::vector<ByteCount> boundary_bytes = home_boundaries(network, shape, planned);
  STAGECOACH_ASSIGN_OR_RETURN(store,
                              ActivationStore::create(*devices[0], boundary_bytes,
                                                      static_cast<int>(options.micro_batches)));
  StageExecutorSetup setup;
  setup.network = &network;
  planned_bytes.resize(devices.size(), request.device_update_bytes);
  for (size_t index = 0; index < planned.devices.size(); ++index) {
    int device = planned.devices[index];
    setup.devices.push_back(devices[device]);
    ByteCount bytes = used_before[device] + planned.arena_bytes[index];
    planned_bytes[device] = std::max(planned_bytes[device], bytes);
  }
  host_planned_bytes =
      std::max(host_planned_bytes, host_need(network, request, residence(), planned).total());
  setup.trace_processes = planned.devices;
  setup.host_state = state.get();
  setup.store = &*store;
  setup.host_worker = &worker;
  if (device_updates) {
    setup.update_queues = device_updates->queues();
    setup.update_streams = device_updates->streams();
  }
  setup.shape = shape;
  setup.arena_bytes = planned.arena_bytes;
  setup.resident_bytes = planned.resident_bytes;
  setup.recomputes = planned.recomputes;
  setup.update = update_mode();
  setup.first_step = steps_asked;
  setup.timeout_ns = options.timeout_ns;
  setup.bulk = options.bulk;
  for (int device : options.measured.empty() ? std::vector<int>() : planned.devices) {
    setup.measured_bulk.push_back(options.measured[device].bulk);
  }
  setup.left_out = options.left_out;
  STAGECOACH_ASSIGN_OR_RETURN(executor, StageExecutor::create(setup));
  for (size_t device = 0; device < planned.shares.size(); ++device) {
    if (planned.shares[device].used) continue;
    notes.push_back(fmt::format("device {} is left out: {}", devices[device]->id(),
                                planned.shares[device].reason));
  }
  return Status::ok();
}

/// What planning knows of the devices of `run`, in its order.
StepSetup Trainer::Impl::used_devices(const PlannedRun& run) const {
  StepSetup all = step_setup(network, request), used = all;
  used.devices.clear();
  for (int device : run.devices) used.devices.push_back(all.devices[device]);
  return used;
}

/// The last pass as the plan in use predicts it, in processes behind those of devices and host.
std::vector<TraceSlice> Trainer::Impl::predicted_pass() {
  if (!planned.predicted || !last_pass) return {};
  for (int device : planned.devices) {
    int process = static_cast<int>(devices.size()) + 1 + device;
    trace.name_process(process, "predicted " + devices[device]->id());
    trace.name_track(process, 0, lane_name(LaneKind::kCompute));
    last_pass->processes.push_back(process);
  }
  return predicted_slices(used_devices(planned), planned.slots, *last_pass);
}

/// Plans once more, with what has been measured, and changes over where that is worth it. No bit of
/// a result depends on it: sums are in the order of micro-batches whatever the stages.
Status Trainer::Impl::replan() {
  STAGECOACH_RETURN_IF_ERROR(drain());
  request.measured = tuner->take_measured();
  if (binds_stages(options.schedule) || request.is_static) {
    if (std::exchange(chooses_share, false)) {
      notes.emplace_back("optimizer.device_share = auto: 0, for stages that stay where they are");
    }
    return Status::ok();
  }
  STAGECOACH_ASSIGN_OR_RETURN(PlannedRun next, make_plan());
  if (chooses_share) {
    STAGECOACH_RETURN_IF_ERROR(choose_share(next));
    if (device_updates) return Status::ok();
  }
  bool same = next.devices == planned.devices && next.slots == planned.slots &&
              next.slot_devices == planned.slot_devices;
  StepSetup used = used_devices(planned);
  double now_ns = predict_step(used, CostTable(used.layers), planned.slots).step_ns;
  // Slots that were placed for other speeds do not move by themselves.
  bool misplaced = planned.slots.dispatch == SlotDispatch::kEarliestFinish &&
                   next.slot_devices != planned.slot_devices;
  bool better = next.predicted->step_ns < now_ns * (1 - RunTuner::kWorthChanging);
  if (same || (!better && !misplaced)) {
    planned.predicted = next.predicted;
    planned.predicted->step_ns = now_ns;
    return Status::ok();
  }
  // More stages may keep more boundaries than the run was admitted with.
  if (Status status = check_host(next); !status.is_ok()) {
    notes.push_back("keeps its plan, for a better one " + status.message());
    return Status::ok();
  }
  notes.push_back(fmt::format(
      "planned anew from measured times: {:.4g} ms a step instead of {:.4g} ms, {} stages on {} of "
      "{} devices",
      next.predicted->step_ns / 1e6, now_ns / 1e6, next.slots.stages.size(), next.devices.size(),
      devices.size()));
  return adopt(std::move(next));
}

/// What the host's work of a step took; where the host is paced, at its pace.
double Trainer::Impl::step_update_ns(const StepOutcome& step) const {
  auto taken_ns = static_cast<double>(step.host_ns);
  if (options.host_bytes_per_s <= 0) return taken_ns;
  double bytes = 0;
  for (int block = 0; block < state->block_count(); ++block) {
    if (state->is_frozen(block)) continue;
    bytes += static_cast<double>(gradient_bytes(*state, block));
    bool is_host = !device_updates || device_updates->updating_devices()[block] < 0;
    if (is_host) bytes += static_cast<double>(update_bytes(*state, block, rule));
  }
  return std::max(taken_ns, bytes / options.host_bytes_per_s * 1e9);
}

/// A plan beside updates on devices as chosen, which take memory there.
Result<PlannedRun> Trainer::Impl::plan_with_updates(const ShareChoice& choice) {
  PlanRequest before = request;
  request.device_update_bytes = DeviceUpdates::bytes(network);
  double factor = std::max(choice.host_updates_ns, choice.device_updates_ns) /
                  CostTable(request.measured->layers).update_ns();
  for (LayerProfile& layer : request.measured->layers) layer.update_ns *= factor;
  for (ByteCount& free : request.free_bytes) {
    free = std::max<ByteCount>(0, free - request.device_update_bytes);
  }
  Result<PlannedRun> next = make_plan();
  Status fits = next.is_ok() ? check_host(*next) : next.status();
  if (fits.is_ok()) return next;
  request = std::move(before);
  return fits;
}

/// With `optimizer.device_share` = "auto": decides once, by what has been measured, and changes
/// over. `next` is the plan without updates on devices.
Status Trainer::Impl::choose_share(const PlannedRun& next) {
  chooses_share = false;
  if (!devices_can_update(options)) {
    notes.emplace_back(
        "optimizer.device_share = auto: 0, since devices update adamw with fp32 moments only");
    return Status::ok();
  }
  ShareChoice choice = choose_device_share(used_devices(next), next.slots,
                                           DeviceUpdates::traffic(network, *state, rule));
  std::string told = fmt::format(
      "optimizer.device_share = auto: {:.4g} (updates take {:.4g} ms on the host alone)",
      choice.share, CostTable(request.measured->layers).update_ns() / 1e6);
  if (choice.share == 0) {
    notes.push_back(std::move(told));
    return Status::ok();
  }
  Result<PlannedRun> shared = plan_with_updates(choice);
  if (!shared.is_ok()) {
    notes.push_back("optimizer.device_share = auto: 0, for " + shared.status().message());
    return Status::ok();
  }
  executor.reset();  // its memory may be what updates need
  STAGECOACH_ASSIGN_OR_RETURN(
      device_updates, DeviceUpdates::create(devices, network, *state, rule, choice.share, *pool));
  if (options.trace) device_updates->set_trace(trace, static_cast<int>(devices.size()), 1);
  for (size_t device = 0; device < devices.size(); ++device) {
    used_before[device] += request.device_update_bytes;
    planned_bytes[device] = std::max(planned_bytes[device], used_before[device]);
  }
  notes.push_back(fmt::format("{}; {:.4g} ms a step instead of {:.4g} ms", told,
                              choice.step_ns / 1e6, choice.host_only_ns / 1e6));
  return adopt(std::move(shared).value());
}

}  // namespace stagecoach
