#include "tools/simulate_layers.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "scheduler/device_planner.h"
#include "scheduler/even_stages.h"
#include "scheduler/layer_time_file.h"
#include "scheduler/schedules/schedule_run.h"
#include "tools/exit_code.h"
#include "tools/plan_output.h"
#include "tools/rated_devices.h"

namespace stagecoach {

namespace {

constexpr double kNsPerMs = 1e6;
/// An update touches weight, gradient and two moments: 26 bytes a parameter of 2 bytes.
constexpr double kUpdateBytesPerParameterByte = 13;

/// What both ways of simulating yield.
struct Outcome {
  Json json = Json::object();
  std::string text;
};

void add_common(const LayerSimulation& simulation, const LayerTimes& times, double bubble,
                double step_ns, std::string_view bottleneck, Outcome& outcome) {
  Json& json = outcome.json;
  json["schedule"] = simulation.schedule;
  json["microbatches"] = simulation.micro_batches;
  json["bubble"] = bubble;
  json["step_s"] = step_ns / 1e9;
  json["bottleneck"] = bottleneck;
  outcome.text = fmt::format("{}: {:.6g} ms a step, idle share {:.4f}, bound by {}\n",
                             simulation.schedule, step_ns / kNsPerMs, bubble, bottleneck);
  if (times.tokens_per_micro_batch <= 0) return;
  double tokens = times.tokens_per_micro_batch * simulation.micro_batches / (step_ns / 1e9);
  json["tokens_per_s"] = tokens;
  outcome.text += fmt::format("{:.6g} tokens/s\n", tokens);
}

Result<Outcome> run_slots(const LayerSimulation& simulation, const LayerTimes& times,
                          const RatedDevices& rated) {
  const ScheduleParameters& given = simulation.parameters;
  if (given.forward_stages || given.backward_stages) {
    return invalid_argument(
        "--forward-stages and --backward-stages follow from the layer times; leave them out");
  }
  if (simulation.schedule == "single" && rated.devices.size() != 1) {
    return invalid_argument(fmt::format("single has one device, not {}", rated.devices.size()));
  }
  StepSetup setup;
  setup.layers = times.layers;
  setup.devices = rated.devices;
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
  setup.hop_ns = times.hop_ns.value_or(2 * rated.latency_ns);
  for (LayerProfile& layer : setup.layers) {
    if (times.hop_ns) layer.boundary_bytes = 0;
    layer.update_ns = static_cast<double>(layer.parameter_bytes) * kUpdateBytesPerParameterByte /
                      rated.host_bytes_per_s * 1e9;
  }
  STAGECOACH_ASSIGN_OR_RETURN(DevicePlan plan, plan_for_devices(setup));
  const StepPrediction& step = plan.planned.prediction;
  Outcome outcome;
  add_common(simulation, times, step.bubble, step.step_ns, step.bottleneck(), outcome);
  outcome.json["update"] = update_mode_name(setup.update);
  outcome.json["lanes"] = lanes_to_json(step);
  outcome.json["makespan_s"] = step.makespan_ns / 1e9;
  outcome.json["plan"] = stages_to_json(plan.planned.slots.stages);
  outcome.text += fmt::format("update {}; {}\n{}\n", update_mode_name(setup.update),
                              lanes_to_text(step), stages_to_text(plan.planned.slots.stages));
  Result<PlannedStages> rule = plan_by_roundpipe_rule(setup);
  if (!rule.is_ok() || rule->slots.stages == plan.planned.slots.stages) return outcome;
  Json& theirs = outcome.json["roundpipe_rule"];
  theirs = stages_to_json(rule->slots.stages);
  theirs["step_s"] = rule->prediction.step_ns / 1e9;
  theirs["bubble"] = rule->prediction.bubble;
  outcome.text += fmt::format("RoundPipe's own rule: {:.6g} ms a step, idle share {:.4f}: {}\n",
                              rule->prediction.step_ns / kNsPerMs, rule->prediction.bubble,
                              stages_to_text(rule->slots.stages));
  return outcome;
}

/// Times of the stages that start at `firsts`.
std::vector<StageTimes> stage_times(const LayerTimes& times, const std::vector<int>& firsts,
                                    const PlannedDevice& device) {
  std::vector<StageTimes> stages;
  double hop_ns = times.hop_ns.value_or(0);
  for (size_t stage = 0; stage < firsts.size(); ++stage) {
    size_t end = stage + 1 < firsts.size() ? firsts[stage + 1] : times.layers.size();
    double forward = 0, backward = 0;
    for (size_t layer = firsts[stage]; layer < end; ++layer) {
      forward += times.layers[layer].forward_ns;
      backward += times.layers[layer].recompute_ns + times.layers[layer].backward_ns;
    }
    StageTimes one;
    one.forward_ns = std::llround(forward);
    one.input_ns = std::llround(backward / 2);
    one.weight_ns = std::llround(backward) - one.input_ns;
    one.backward_ns = one.input_ns + one.weight_ns;
    stages.push_back(one);
    if (times.hop_ns || device.up_bytes_per_ns <= 0 || device.down_bytes_per_ns <= 0) continue;
    // Down to the host and up again; the slowest hand-over counts for all.
    double bytes = static_cast<double>(times.layers[end - 1].boundary_bytes);
    hop_ns = std::max(hop_ns, bytes / device.up_bytes_per_ns + bytes / device.down_bytes_per_ns);
  }
  for (StageTimes& stage : stages) stage.hop_ns = std::llround(hop_ns);
  return stages;
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

/// Iterations that a flushing schedule is simulated for: one with barrier, else a steady few.
Status choose_iterations(const Schedule& schedule, const LayerSimulation& simulation,
                         ScheduleParameters& parameters) {
  constexpr int kSteady = 5;
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
  if (!parameters.iterations) parameters.iterations = barrier ? 1 : kSteady;
  return Status::ok();
}

Result<Outcome> run_bound(const Schedule& schedule, const LayerSimulation& simulation,
                          const LayerTimes& times, const RatedDevices& rated) {
  for (const PlannedDevice& device : rated.devices) {
    if (device.speed == 1) continue;
    return unimplemented(
        fmt::format("{} on devices of unequal speed is not simulated in this version; roundpipe is",
                    schedule.name));
  }
  ScheduleParameters parameters = simulation.parameters;
  parameters.stages = static_cast<int>(rated.devices.size());
  parameters.micro_batches = simulation.micro_batches;
  STAGECOACH_RETURN_IF_ERROR(choose_iterations(schedule, simulation, parameters));
  int count = parameters.stages * schedule_chunks(schedule, parameters);
  STAGECOACH_ASSIGN_OR_RETURN(std::vector<int> firsts, cut_evenly(times.layers, count));
  parameters.stage_times = stage_times(times, firsts, rated.devices.front());
  parameters.times = parameters.stage_times.front();
  STAGECOACH_ASSIGN_OR_RETURN(ScheduleRun run, run_schedule(schedule.name, parameters, 0));
  int iterations = parameters.iterations.value_or(1);
  double step_ns = steady_step_ns(run, iterations);
  double work_ns = static_cast<double>(run.measures.work_ns) / iterations;
  double bubble = std::max(0.0, 1 - work_ns / (parameters.stages * step_ns));
  Outcome outcome;
  add_common(simulation, times, bubble, step_ns, "compute", outcome);
  outcome.json["lanes"]["compute"]["busy_fraction"] = 1 - bubble;
  outcome.json["stages"] = Json::array();
  outcome.text += "stages";
  for (int stage = 0; stage < count; ++stage) {
    int last = (stage + 1 < count ? firsts[stage + 1] : static_cast<int>(times.layers.size())) - 1;
    outcome.json["stages"].push_back(Json(Json::Array{firsts[stage], last}));
    outcome.text += fmt::format(" {}-{}", firsts[stage], last);
  }
  outcome.text += "\n";
  return outcome;
}

}  // namespace

Result<int> simulate_layers(const LayerSimulation& simulation, const CommandContext& context) {
  STAGECOACH_ASSIGN_OR_RETURN(const Schedule* schedule, find_schedule(simulation.schedule));
  if (schedule->name == "slidedp") {
    return unimplemented("slidedp with --layer-times is not simulated in this version");
  }
  STAGECOACH_ASSIGN_OR_RETURN(LayerTimes times, read_layer_times(simulation.layer_times));
  STAGECOACH_ASSIGN_OR_RETURN(RatedDevices rated,
                              rate_devices(simulation.devices, context.backends));
  bool slots = schedule->notation == OrderNotation::kSlots;
  STAGECOACH_ASSIGN_OR_RETURN(
      Outcome outcome,
      slots ? run_slots(simulation, times, rated) : run_bound(*schedule, simulation, times, rated));
  for (const std::string& assumption : rated.assumptions) {
    outcome.json["assumptions"].push_back(assumption);
    outcome.text += fmt::format("assumed: {}\n", assumption);
  }
  fmt::print("{}", context.json ? outcome.json.dump() + "\n" : outcome.text);
  return kExitOk;
}

}  // namespace stagecoach
