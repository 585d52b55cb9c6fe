#include "tools/simulate_layers.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "scheduler/device_planner.h"
#include "scheduler/layer_time_file.h"
#include "scheduler/network_profile.h"
#include "scheduler/partition.h"
#include "scheduler/plan_fit.h"
#include "scheduler/schedules/schedule_run.h"
#include "scheduler/slot_run.h"
#include "scheduler/update_cost.h"
#include "tools/plan_output.h"
#include "tools/rated_devices.h"

namespace stagecoach {

namespace {

/// Iterations that are simulated for a steady one, unless the command line says.
constexpr int kSteadyIterations = 5;

/// What both ways of simulating start from.
struct Inputs {
  const Schedule* schedule = nullptr;
  LayerTimes times;
  RatedDevices rated;
};

Result<Inputs> read_inputs(const LayerSimulation& simulation, const CommandContext& context) {
  Inputs inputs;
  STAGECOACH_ASSIGN_OR_RETURN(inputs.times, read_layer_times(simulation.layer_times));
  if (simulation.tokens > 0) {
    Result<LayerTimes> scaled = for_tokens(std::move(inputs.times), simulation.tokens);
    if (!scaled.is_ok()) return scaled.status().with_context(simulation.layer_times);
    inputs.times = std::move(scaled).value();
  }
  STAGECOACH_ASSIGN_OR_RETURN(inputs.rated, rate_devices(simulation.devices, context.backends));
  return inputs;
}

double tokens_per_s(const LayerTimes& times, int micro_batches, double step_ns) {
  return times.tokens_per_micro_batch * micro_batches / (step_ns / 1e9);
}

void add_assumptions(const RatedDevices& rated, LayerFigures& figures) {
  for (const std::string& assumption : rated.assumptions) {
    figures.details["assumptions"].push_back(assumption);
    figures.text += fmt::format("assumed: {}\n", assumption);
  }
}

// ---- streamed slots --------------------------------------------------------------------------

Result<StepSetup> slot_setup(const LayerSimulation& simulation, const Inputs& inputs) {
  const ScheduleParameters& given = simulation.parameters;
  StepSetup setup;
  setup.layers = inputs.times.layers;
  use_rated_devices(inputs.rated, setup);
  setup.micro_batches = simulation.micro_batches;
  int round = given.round.value_or(simulation.micro_batches);
  if (round < 1 || simulation.micro_batches % round != 0) {
    return invalid_argument(fmt::format("--round is {}; it must divide --microbatches, {}", round,
                                        simulation.micro_batches));
  }
  setup.rounds = simulation.micro_batches / round;
  setup.iterations = given.iterations.value_or(0);
  STAGECOACH_ASSIGN_OR_RETURN(
      setup.update, parse_update_mode(simulation.update.empty() ? "overlap" : simulation.update));
  if (inputs.times.hop_ns) {
    setup.hop_ns = *inputs.times.hop_ns;
    for (LayerProfile& layer : setup.layers) layer.boundary_bytes = 0;
  }
  double touched = kUpdateBytesPerParameter;
  if (setup.rounds > 1) touched += kRoundSumBytesPerParameter;
  // Every device sends a gradient of its own.
  if (inputs.schedule->name == "slidedp") touched += 2.0 * (setup.device_count() - 1);
  set_update_cost(setup, touched, inputs.rated.host_bytes_per_s / 1e9);
  return setup;
}

/// RoundPipe's own stages for the same layers, then with its own traffic too.
void add_roundpipe(const StepSetup& setup, const Inputs& inputs, const std::vector<Stage>& ours,
                   LayerFigures& figures) {
  Result<PlannedStages> rule = plan_by_roundpipe_rule(setup);
  if (rule.is_ok() && rule->slots.stages != ours) {
    Json& theirs = figures.details["roundpipe_rule"];
    theirs = stages_to_json(rule->slots.stages);
    theirs["step_s"] = rule->prediction.step_ns / 1e9;
    theirs["bubble"] = rule->prediction.bubble;
    figures.text += fmt::format("RoundPipe's own rule: {:.6g} ms a step, idle share {:.4f}: {}\n",
                                rule->prediction.step_ns / kNsPerMs, rule->prediction.bubble,
                                stages_to_text(rule->slots.stages));
  }
  Result<PlannedStages> released =
      plan_by_roundpipe_rule(as_roundpipe_runs(setup, inputs.rated.host_bytes_per_s / 1e9));
  if (!released.is_ok()) return;
  const StepPrediction& step = released->prediction;
  Json& theirs = figures.details["roundpipe_released"];
  theirs["step_s"] = step.step_ns / 1e9;
  theirs["bubble"] = step.bubble;
  theirs["bottleneck"] = step.bottleneck();
  if (setup.update == UpdateMode::kBarrier) {
    theirs["update_exposed_s"] = step.update_exposed_ns / 1e9;
  }
  figures.text +=
      fmt::format("RoundPipe as released: {:.6g} ms a step, idle share {:.4f}, bound by {}",
                  step.step_ns / kNsPerMs, step.bubble, step.bottleneck());
  double tokens = tokens_per_s(inputs.times, setup.micro_batches, step.step_ns);
  if (tokens > 0) {
    theirs["tokens_per_s"] = tokens;
    figures.text += fmt::format(", {:.6g} tokens/s", tokens);
  }
  figures.text += "\n";
}

/// Every layer a stage of its own, the last one fused, on every device.
SlotPlan layer_by_layer(int layers) {
  SlotPlan plan;
  for (int layer = 0; layer + 1 < layers; ++layer) {
    plan.stages.push_back({ActionKind::kForward, layer, layer});
  }
  plan.stages.push_back({ActionKind::kForwardBackward, layers - 1, layers - 1});
  for (int layer = layers - 2; layer >= 0; --layer) {
    plan.stages.push_back({ActionKind::kBackward, layer, layer});
  }
  plan.dispatch = SlotDispatch::kEveryDevice;
  return plan;
}

Result<DevicePlan> plan_slots(const StepSetup& setup, std::string_view schedule) {
  if (schedule != "slidedp") return plan_for_devices(setup);
  STAGECOACH_RETURN_IF_ERROR(check_step_setup(setup));
  CostTable costs(setup.layers);
  DevicePlan plan;
  plan.planned.slots = layer_by_layer(costs.layer_count());
  if (!plan_fits(setup, costs, plan.planned.slots)) {
    return resource_exhausted(
        "no device holds two of the largest layer; use smaller micro-batches");
  }
  for (int device = 0; device < setup.device_count(); ++device) plan.devices.push_back(device);
  return plan;
}

Result<SimulatedRun> run_slots(const LayerSimulation& simulation, const Inputs& inputs) {
  const ScheduleParameters& given = simulation.parameters;
  STAGECOACH_RETURN_IF_ERROR(check_parameters(*inputs.schedule, given));
  if (given.forward_stages || given.backward_stages) {
    return invalid_argument(
        "--forward-stages and --backward-stages follow from the layer times; leave them out");
  }
  if (simulation.schedule == "single" && inputs.rated.devices.size() != 1) {
    return invalid_argument(
        fmt::format("single has one device, not {}", inputs.rated.devices.size()));
  }
  STAGECOACH_ASSIGN_OR_RETURN(StepSetup setup, slot_setup(simulation, inputs));
  STAGECOACH_ASSIGN_OR_RETURN(DevicePlan plan, plan_slots(setup, simulation.schedule));
  StepSetup used = setup;
  used.devices.clear();
  for (int device : plan.devices) used.devices.push_back(setup.devices[device]);
  bool is_steady = setup.update != UpdateMode::kBarrier;
  if (is_steady && !given.iterations) used.iterations = kSteadyIterations;
  const SlotPlan& slots = plan.planned.slots;
  std::vector<ComputedInterval> timeline;
  StepPrediction step = predict_step(used, CostTable(used.layers), slots, &timeline);
  LayerFigures figures;
  figures.bubble = step.bubble;
  figures.step_ns = step.step_ns;
  figures.tokens_per_s = tokens_per_s(inputs.times, setup.micro_batches, step.step_ns);
  figures.bottleneck = step.bottleneck();
  figures.details["update"] = update_mode_name(setup.update);
  if (setup.update == UpdateMode::kBarrier) {
    figures.details["update_exposed_s"] = step.update_exposed_ns / 1e9;
    figures.text =
        fmt::format("{:.6g} ms of updates after computing\n", step.update_exposed_ns / kNsPerMs);
  }
  figures.details["lanes"] = lanes_to_json(step);
  figures.details["plan"] = stages_to_json(slots.stages);
  figures.text += fmt::format("update {}; {}\n{}\n", update_mode_name(setup.update),
                              lanes_to_text(step), stages_to_text(slots.stages));
  if (simulation.schedule != "slidedp") add_roundpipe(used, inputs, slots.stages, figures);
  add_assumptions(inputs.rated, figures);
  return SimulatedRun{
      run_of_slots(simulation.schedule, used, slots, timeline, setup.device_count(), plan.devices),
      kNsPerMs, std::move(figures)};
}

// ---- stages bound to devices -----------------------------------------------------------------

/// Per stage number of `plan`: its layers.
std::vector<Stage> numbered_stages(const Plan& plan) {
  std::vector<Stage> stages;
  std::vector<int> numbers = stage_numbers(plan);
  for (size_t index = 0; index < numbers.size(); ++index) {
    stages.resize(std::max<size_t>(stages.size(), numbers[index] + 1));
    stages[numbers[index]] = plan.stages[index];
  }
  return stages;
}

/// Times of stages on a device of speed 1. The slowest hand-over counts for all.
std::vector<StageTimes> stage_times(const Inputs& inputs, const std::vector<Stage>& stages) {
  std::vector<StageTimes> all;
  double hop_ns = inputs.times.hop_ns.value_or(0);
  double up = inputs.rated.devices.front().up_bytes_per_ns, down = up;
  for (const PlannedDevice& device : inputs.rated.devices) {
    up = std::min(up, device.up_bytes_per_ns);
    down = std::min(down, device.down_bytes_per_ns);
  }
  for (const Stage& stage : stages) {
    double forward = 0, backward = 0;
    for (int index = stage.first_layer; index <= stage.last_layer; ++index) {
      const LayerProfile& layer = inputs.times.layers[index];
      forward += layer.forward_ns;
      backward += layer.recompute_ns + layer.backward_ns;
    }
    StageTimes one;
    one.forward_ns = std::llround(forward);
    one.input_ns = std::llround(backward / 2);
    one.weight_ns = std::llround(backward) - one.input_ns;
    one.backward_ns = one.input_ns + one.weight_ns;
    all.push_back(one);
    if (inputs.times.hop_ns || up <= 0 || down <= 0) continue;
    // Down to the host and up again.
    auto bytes = static_cast<double>(inputs.times.layers[stage.last_layer].boundary_bytes);
    hop_ns = std::max(hop_ns, bytes / up + bytes / down);
  }
  for (StageTimes& stage : all) stage.hop_ns = std::llround(hop_ns);
  return all;
}

std::vector<double> speeds_of(const RatedDevices& rated) {
  std::vector<double> speeds;
  for (const PlannedDevice& device : rated.devices) speeds.push_back(device.speed);
  return speeds;
}

/// Per stage number, the slowest device that runs it.
std::vector<double> stage_speeds(const Plan& plan, const std::vector<double>& device_speeds) {
  std::vector<int> numbers = stage_numbers(plan);
  std::vector<double> speeds(*std::max_element(numbers.begin(), numbers.end()) + 1, 1);
  for (int device = 0; device < plan.device_count(); ++device) {
    for (const Action& action : plan.device_actions[device]) {
      double& speed = speeds[numbers[action.stage]];
      speed = std::min(speed, device_speeds[device]);
    }
  }
  return speeds;
}

/// Mean time of the iterations after the first; of all where there is but one window of updates.
double steady_step_ns(const ScheduleRun& run, int iterations) {
  if (iterations < 2) return static_cast<double>(run.measures.makespan_ns) / iterations;
  int64_t first = 0, last = 0;
  for (int device = 0; device < run.plan.device_count(); ++device) {
    const std::vector<Action>& actions = run.plan.device_actions[device];
    for (size_t index = 0; index < actions.size(); ++index) {
      int64_t end = run.timeline.actions[device][index].end_ns;
      if (run.plan.window_of(actions[index].micro_batch) == 0) first = std::max(first, end);
      last = std::max(last, end);
    }
  }
  return static_cast<double>(last - first) / (iterations - 1);
}

/// Refuses what a device cannot hold: weights in as many versions as it keeps, their gradients'
/// sums, what micro-batches in flight keep, and a stage at work where backward recomputes.
Status check_memory(const ScheduleRun& run, const Inputs& inputs, double freed_at_input) {
  std::vector<int64_t> kept;
  for (const LayerProfile& layer : inputs.times.layers) {
    kept.push_back(layer.recompute_ns > 0 ? layer.boundary_bytes : layer.saved_bytes);
  }
  std::vector<int64_t> peaks =
      activation_use(run.plan, run.timeline, kept, freed_at_input).peak_bytes;
  for (int device = 0; device < run.plan.device_count(); ++device) {
    std::vector<bool> is_here(inputs.times.layers.size(), false);
    ByteCount work = 0, weights = 0, sums = 0;
    for (const Action& action : run.plan.device_actions[device]) {
      const Stage& stage = run.plan.stage_of(action);
      ByteCount of_stage = 0;
      for (int index = stage.first_layer; index <= stage.last_layer; ++index) {
        const LayerProfile& layer = inputs.times.layers[index];
        if (layer.recompute_ns > 0) of_stage += layer.saved_bytes;
        if (is_here[index]) continue;
        is_here[index] = true;
        weights += run.versions.kept[device] * layer.parameter_bytes;
        sums += layer.gradient_sum_bytes;
      }
      work = std::max(work, of_stage);
    }
    ByteCount memory = inputs.rated.devices[device].memory_bytes;
    ByteCount need = weights + sums + peaks[device] + work;
    if (memory == 0 || need <= memory) continue;
    return resource_exhausted(fmt::format(
        "device {} has {} ({} bytes), but schedule {} keeps {} ({} bytes) on it: weights {}, "
        "gradient sums {}, activations {}; name more devices, more memory ([memory=…]) or "
        "roundpipe, which streams its stages",
        inputs.rated.devices[device].name, format_bytes(memory), memory, run.plan.schedule,
        format_bytes(need), need, format_bytes(weights), format_bytes(sums),
        format_bytes(peaks[device] + work)));
  }
  return Status::ok();
}

SimulatedRun describe_pipeline(ScheduleRun run, const Inputs& inputs, int iterations) {
  double step_ns = steady_step_ns(run, iterations);
  double work_ns = static_cast<double>(run.measures.work_ns) / iterations;
  LayerFigures figures;
  figures.bubble = std::max(0.0, 1 - work_ns / (run.plan.device_count() * step_ns));
  figures.step_ns = step_ns;
  figures.tokens_per_s = tokens_per_s(inputs.times, run.plan.micro_batches / iterations, step_ns);
  figures.bottleneck = "compute";
  figures.details["lanes"]["compute"]["busy_fraction"] = 1 - figures.bubble;
  figures.details["stages"] = Json::array();
  figures.text = "stages";
  for (const Stage& stage : numbered_stages(run.plan)) {
    figures.details["stages"].push_back(Json(Json::Array{stage.first_layer, stage.last_layer}));
    figures.text += fmt::format(" {}-{}", stage.first_layer, stage.last_layer);
  }
  figures.text += "\n";
  add_assumptions(inputs.rated, figures);
  return SimulatedRun{std::move(run), kNsPerMs, std::move(figures)};
}

/// Iterations that a flushing schedule is simulated for: one with barrier, else a steady few.
Status choose_iterations(const Schedule& schedule, const LayerSimulation& simulation,
                         ScheduleParameters& parameters) {
  if (simulation.update == "async") {
    return invalid_argument(fmt::format(
        "--update is 'async', which is roundpipe's; {} has barrier and overlap", schedule.name));
  }
  if (!simulation.update.empty()) {
    STAGECOACH_RETURN_IF_ERROR(parse_update_mode(simulation.update).status());
  }
  const std::vector<std::string_view>& own = schedule.parameters;
  if (std::find(own.begin(), own.end(), "iterations") == own.end()) return Status::ok();
  bool barrier = simulation.update == "barrier";
  if (!parameters.iterations) parameters.iterations = barrier ? 1 : kSteadyIterations;
  if (barrier) parameters.barrier = 1;
  return Status::ok();
}

Result<SimulatedRun> run_pipeline(const LayerSimulation& simulation, const Inputs& inputs) {
  const Schedule& schedule = *inputs.schedule;
  ScheduleParameters parameters = simulation.parameters;
  parameters.stages = static_cast<int>(inputs.rated.devices.size());
  parameters.micro_batches = simulation.micro_batches;
  STAGECOACH_RETURN_IF_ERROR(choose_iterations(schedule, simulation, parameters));
  int count = parameters.stages * schedule_chunks(schedule, parameters);
  std::vector<double> speeds(count, 1);
  parameters.speeds = speeds_of(inputs.rated);
  bool equal = std::count(parameters.speeds.begin(), parameters.speeds.end(), 1.0) ==
               std::ssize(parameters.speeds);
  if (!equal) {
    // Where stages are follows from the schedule alone.
    STAGECOACH_ASSIGN_OR_RETURN(Plan plan, make_plan(schedule, parameters));
    speeds = stage_speeds(plan, parameters.speeds);
  }
  std::vector<double> costs;
  for (const LayerProfile& layer : inputs.times.layers) {
    costs.push_back(layer.forward_ns + layer.recompute_ns + layer.backward_ns);
  }
  if (count > std::ssize(costs)) {
    return invalid_argument(fmt::format("{} layers cannot be cut into {} stages; use 1 to {}",
                                        costs.size(), count, costs.size()));
  }
  parameters.layers = partition_evenly(costs, speeds);
  std::vector<Stage> stages;
  for (const auto& [first, last] : parameters.layers) {
    stages.push_back({ActionKind::kForward, first, last});
  }
  parameters.stage_times = stage_times(inputs, stages);
  parameters.times = parameters.stage_times.front();
  STAGECOACH_ASSIGN_OR_RETURN(ScheduleRun run,
                              run_schedule(schedule.name, parameters, simulation.freed_at_input));
  STAGECOACH_RETURN_IF_ERROR(check_memory(run, inputs, simulation.freed_at_input));
  return describe_pipeline(std::move(run), inputs, parameters.iterations.value_or(1));
}

}  // namespace

Result<SimulatedRun> simulate_layers(const LayerSimulation& simulation,
                                     const CommandContext& context) {
  STAGECOACH_ASSIGN_OR_RETURN(const Schedule* schedule, find_schedule(simulation.schedule));
  STAGECOACH_ASSIGN_OR_RETURN(Inputs inputs, read_inputs(simulation, context));
  inputs.schedule = schedule;
  bool slots = schedule->notation == OrderNotation::kSlots;
  return slots ? run_slots(simulation, inputs) : run_pipeline(simulation, inputs);
}

Result<SimulatedRun> simulate_layers_in_order(Plan plan, OrderNotation notation,
                                              const LayerSimulation& simulation,
                                              const CommandContext& context) {
  STAGECOACH_ASSIGN_OR_RETURN(Inputs inputs, read_inputs(simulation, context));
  auto layers = static_cast<int>(inputs.times.layers.size());
  if (notation == OrderNotation::kSlots || plan.layer_count() != layers ||
      plan.device_count() != std::ssize(inputs.rated.devices)) {
    return invalid_argument(
        fmt::format("the order is of {} layers on {} devices and {}; it must be one of stages "
                    "bound to devices, "
                    "of the {} layers of {} on {} devices",
                    plan.layer_count(), plan.device_count(),
                    notation == OrderNotation::kSlots ? "streams slots" : "binds its stages",
                    layers, simulation.layer_times, inputs.rated.devices.size()));
  }
  RunConditions conditions;
  conditions.stage_times = stage_times(inputs, numbered_stages(plan));
  conditions.times = conditions.stage_times.front();
  conditions.speeds = speeds_of(inputs.rated);
  conditions.freed_at_input = simulation.freed_at_input;
  conditions.notation = notation;
  int iterations = plan.micro_batches / plan.window_size();
  STAGECOACH_ASSIGN_OR_RETURN(ScheduleRun run, run_plan(std::move(plan), conditions));
  STAGECOACH_RETURN_IF_ERROR(check_memory(run, inputs, conditions.freed_at_input));
  return describe_pipeline(std::move(run), inputs, iterations);
}

}  // namespace stagecoach
