#include "tools/simulate_model.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/printable.h"
#include "scheduler/schedules/schedule_run.h"
#include "tools/executed_step.h"
#include "tools/exit_code.h"
#include "tools/plan_output.h"
#include "tools/simulation_output.h"
#include "tools/stage_time_file.h"

namespace stagecoach {

namespace {

constexpr int64_t kMostSequences = 1'000'000;
/// Each action has a slice on three lanes at most, each slot one more a layer.
constexpr size_t kMostSlices = 5 * kMostExecutedActions;

Result<ModelPlanRequest> request_for(const ModelSimulation& simulation, int64_t sequence) {
  if (simulation.schedule != "roundpipe" && simulation.schedule != "single") {
    STAGECOACH_RETURN_IF_ERROR(find_schedule(simulation.schedule).status());
    return unimplemented(
        fmt::format("--schedule is '{}': this version simulates models with roundpipe and single; "
                    "--layer-times takes the others",
                    simulation.schedule));
  }
  const ScheduleParameters& given = simulation.parameters;
  if (given.forward_stages || given.backward_stages || given.iterations) {
    return invalid_argument(
        "--forward-stages and --backward-stages follow from the model, and one iteration is run; "
        "leave them and --iterations out");
  }
  int round = given.round.value_or(simulation.micro_batches);
  if (round < 1 || simulation.micro_batches % round != 0) {
    return invalid_argument(fmt::format("--round is {}; it must divide --microbatches, {}", round,
                                        simulation.micro_batches));
  }
  ModelPlanRequest request;
  request.shape = {simulation.model.sequences, sequence};
  request.micro_batches = simulation.micro_batches;
  request.rounds = simulation.micro_batches / round;
  STAGECOACH_ASSIGN_OR_RETURN(
      request.update, parse_update_mode(simulation.update.empty() ? "overlap" : simulation.update));
  return request;
}

/// When the executor ran each action, from the first one on: what an action waited for parameters
/// lies before it. Devices keep their lists' order.
PlanTimeline timeline_of(const Plan& plan, const IterationReport& report,
                         const std::vector<TraceSlice>& slices) {
  PlanTimeline timeline;
  timeline.actions.resize(plan.device_actions.size());
  timeline.order.resize(plan.device_actions.size());
  int64_t start_ns = slices.empty() ? 0 : slices.front().start_ns;
  for (const TraceSlice& slice : slices) {
    if (slice.track == static_cast<int>(LaneKind::kCompute)) {
      start_ns = std::min(start_ns, slice.start_ns);
    }
  }
  for (const TraceSlice& slice : slices) {
    if (slice.track != static_cast<int>(LaneKind::kCompute)) continue;
    auto device = static_cast<size_t>(slice.process);
    timeline.order[device].push_back(static_cast<int>(timeline.actions[device].size()));
    int64_t end_ns = slice.end_ns - start_ns;
    int64_t taken_ns = report.action_ns[device][timeline.actions[device].size()];
    timeline.actions[device].push_back({end_ns - taken_ns, end_ns});
  }
  return timeline;
}

StepLane step_lane(int track) {
  switch (static_cast<LaneKind>(track)) {
    case LaneKind::kCompute:
      return StepLane::kCompute;
    case LaneKind::kActivationUp:
      return StepLane::kActivationsUp;
    case LaneKind::kActivationDown:
      return StepLane::kActivationsDown;
    case LaneKind::kParameterUp:
      return StepLane::kParametersUp;
    case LaneKind::kGradientDown:
      return StepLane::kGradientsDown;
  }
  return StepLane::kCompute;
}

/// Shares of the iteration in which a lane of the mean device had something under way.
Json lanes_of(const std::vector<TraceSlice>& slices, const ExecutedStep& step, size_t devices) {
  double busy_ns[kStepLanes] = {};
  for (const TraceSlice& slice : slices) {
    busy_ns[static_cast<int>(step_lane(slice.track))] +=
        static_cast<double>(slice.end_ns - slice.start_ns);
  }
  Json json = Json::object();
  for (int lane = 0; lane < kStepLanes; ++lane) {
    // Updates are not part of an iteration on its own.
    if (static_cast<StepLane>(lane) == StepLane::kHostUpdate) continue;
    json[step_lane_name(static_cast<StepLane>(lane))]["busy_fraction"] =
        busy_ns[lane] / (step.total_ns * static_cast<double>(devices));
  }
  return json;
}

struct Outcome {
  Json json;
  std::string text;
};

Outcome describe(const ModelSimulation& simulation, const ModelPlan& plan, const ExecutedStep& step,
                 const ScheduleRun& run, const std::vector<TraceSlice>& slices, double tokens) {
  double span_s = static_cast<double>(step.report.span_ns) / 1e9;
  const StepPrediction& prediction = plan.plan.planned.prediction;
  // Thousands of entries are for programs.
  SimulatedRun shown{run, kNsPerMs, std::nullopt};
  Outcome outcome{run_to_json(shown), measures_to_text(shown)};
  Json& json = outcome.json;
  json["microbatches"] = simulation.micro_batches;
  json["bubble"] = step.report.bubble;
  json["step_s"] = span_s;
  json["predicted_step_s"] = prediction.makespan_ns / 1e9;
  json["predicted_steady_step_s"] = prediction.step_ns / 1e9;
  json["tokens_per_s"] = tokens / span_s;
  json["bottleneck"] = prediction.bottleneck();
  json["lanes"] = lanes_of(slices, step, step.device_peak_bytes.size());
  json["plan"] = stages_to_json(plan.plan.planned.slots.stages);
  json["memory"] = memory_to_json(plan);
  for (ByteCount peak : step.device_peak_bytes) json["device_peak_bytes"].push_back(peak);
  json["bytes_up"] = step.report.bytes_up;
  json["bytes_down"] = step.report.bytes_down;
  outcome.text += fmt::format(
      "{}\none iteration on its own, without updates: {:.6g} ms by the executor in virtual time, "
      "predicted {:.6g} ms; {:.6g} tokens/s; idle share {:.4f}\n"
      "a step among others, with updates: predicted {:.6g} ms, bound by {}\n{} up, {} down\n{}",
      stages_to_text(plan.plan.planned.slots.stages), 1e3 * span_s, prediction.makespan_ns / 1e6,
      tokens / span_s, step.report.bubble, prediction.step_ns / 1e6, prediction.bottleneck(),
      format_bytes(step.report.bytes_up), format_bytes(step.report.bytes_down),
      memory_to_text(plan));
  return outcome;
}

Status write_trace(const std::string& path, const ModelPlan& plan, Trace& trace) {
  std::vector<int> devices = executed_devices(plan);
  for (size_t index = 0; index < devices.size(); ++index) {
    auto process = static_cast<int>(index);
    trace.name_process(process, plan.setup.devices[devices[index]].name);
    for (int lane = 0; lane < kLaneCount; ++lane) {
      trace.name_track(process, lane, lane_name(static_cast<LaneKind>(lane)));
    }
  }
  return trace.write_perfetto(path);
}

}  // namespace

Result<int> simulate_model(const ModelSimulation& simulation, const CommandContext& context) {
  if (simulation.model.sequences < 1 || simulation.model.sequences > kMostSequences) {
    return invalid_argument(fmt::format("--micro-batch-size is {}; it must be from 1 to {}",
                                        simulation.model.sequences, kMostSequences));
  }
  STAGECOACH_ASSIGN_OR_RETURN(PlannedModel model, resolve_planned_model(simulation.model));
  STAGECOACH_ASSIGN_OR_RETURN(ModelPlanRequest request, request_for(simulation, model.sequence));
  STAGECOACH_ASSIGN_OR_RETURN(RatedDevices rated,
                              rate_devices(simulation.devices, context.backends));
  if (simulation.schedule == "single" && rated.devices.size() != 1) {
    return invalid_argument(fmt::format("single has one device, not {}", rated.devices.size()));
  }
  STAGECOACH_ASSIGN_OR_RETURN(ModelPlan plan, plan_model(model.network, request, rated));
  Trace trace(kMostSlices);
  STAGECOACH_ASSIGN_OR_RETURN(ExecutedStep step, execute_step(plan, simulation.model.model,
                                                              model.network.dtype, rated, &trace));
  STAGECOACH_CHECK(trace.dropped() == 0);
  std::vector<TraceSlice> slices = trace.slices();
  Plan actions = executable_plan(plan);
  PlanTimeline timeline = timeline_of(actions, step.report, slices);
  ScheduleRun run = measure_run(std::move(actions), std::move(timeline), 0, OrderNotation::kSlots);
  double tokens = static_cast<double>(request.shape.rows() * simulation.micro_batches);
  Outcome outcome = describe(simulation, plan, step, run, slices, tokens);
  if (!simulation.trace.empty()) {
    STAGECOACH_RETURN_IF_ERROR(write_trace(simulation.trace, plan, trace));
  }
  rated.assumptions.push_back(plan.layer_times);
  rated.assumptions.insert(rated.assumptions.end(), model.notes.begin(), model.notes.end());
  for (const std::string& assumption : rated.assumptions) {
    outcome.json["assumptions"].push_back(assumption);
    outcome.text += fmt::format("assumed: {}\n", printable(assumption));
  }
  fmt::print("{}", context.json ? outcome.json.dump() + "\n" : outcome.text);
  return kExitOk;
}

}  // namespace stagecoach
