#include "scheduler/iteration_report.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "scheduler/plan_measures.h"
#include "scheduler/plan_simulation.h"

namespace stagecoach {

namespace {

struct TimedSpan {
  const LaneSpan* span = nullptr;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
};

Result<std::vector<TimedSpan>> time_spans(const LaneRecord& lane) {
  std::vector<TimedSpan> timed;
  for (const LaneSpan& span : lane.spans) {
    TimedSpan item{&span, 0, 0};
    STAGECOACH_ASSIGN_OR_RETURN(item.start_ns, lane.event_time_ns(span.start_event));
    STAGECOACH_ASSIGN_OR_RETURN(item.end_ns, lane.event_time_ns(span.end_event));
    timed.push_back(item);
  }
  return timed;
}

void add_slices(Trace& trace, int device, const std::vector<TimedSpan>& spans, uint32_t iteration) {
  for (const TimedSpan& item : spans) {
    TraceSlice slice;
    bool compute = item.span->lane == LaneKind::kCompute;
    slice.name = compute ? action_kind_name(item.span->kind) : lane_name(item.span->lane);
    slice.category = compute ? "compute" : "transfer";
    slice.process = device;
    slice.track = static_cast<int>(item.span->lane);
    slice.start_ns = item.start_ns;
    slice.end_ns = item.end_ns;
    slice.micro_batch = item.span->micro_batch;
    slice.stage = item.span->stage;
    slice.iteration = static_cast<int32_t>(iteration);
    slice.bytes = compute ? -1 : item.span->bytes;
    trace.add(slice);
  }
}

/// Time the compute lane idled although parameters and inputs of its next action were there.
int64_t ready_idle_ns(const std::vector<TimedSpan>& spans, size_t action_count) {
  std::vector<int64_t> ready(action_count, 0);
  int64_t parameters_ready = 0;
  std::vector<const TimedSpan*> compute;
  for (const TimedSpan& item : spans) {
    if (item.span->lane == LaneKind::kActivationUp) ready[item.span->action] = item.end_ns;
    if (item.span->lane == LaneKind::kCompute) compute.push_back(&item);
  }
  int64_t idle = 0;
  int stage = -1;
  for (size_t index = 1; index < compute.size(); ++index) {
    const TimedSpan& item = *compute[index];
    if (item.span->stage != stage) {
      stage = item.span->stage;
      for (const TimedSpan& upload : spans) {
        if (upload.span->lane == LaneKind::kParameterUp && upload.span->stage == stage &&
            upload.start_ns <= item.start_ns) {
          // Compute begins when the first layer's are there; when that was is not known.
          parameters_ready = std::max(parameters_ready, std::min(upload.end_ns, item.start_ns));
        }
      }
    }
    int64_t could_start =
        std::max({compute[index - 1]->end_ns, ready[item.span->action], parameters_ready});
    idle += std::max<int64_t>(0, item.start_ns - could_start);
  }
  return idle;
}

/// Per action: how long it waited for parameters after it had begun.
Result<std::vector<int64_t>> time_stalls(const LaneRecord& lane, size_t action_count) {
  std::vector<int64_t> stalls(action_count, 0);
  for (const ActionStall& stall : lane.stalls) {
    STAGECOACH_ASSIGN_OR_RETURN(int64_t start_ns, lane.event_time_ns(stall.start_event));
    STAGECOACH_ASSIGN_OR_RETURN(int64_t end_ns, lane.event_time_ns(stall.end_event));
    stalls[stall.action] += end_ns - start_ns;
  }
  return stalls;
}

Status add_layer_samples(const LaneRecord& lane, int device, std::vector<LayerSample>& samples) {
  for (const LayerSpan& span : lane.layer_spans) {
    STAGECOACH_ASSIGN_OR_RETURN(int64_t start_ns, lane.event_time_ns(span.start_event));
    STAGECOACH_ASSIGN_OR_RETURN(int64_t end_ns, lane.event_time_ns(span.end_event));
    samples.push_back({device, span.layer, span.phase, static_cast<double>(end_ns - start_ns)});
  }
  return Status::ok();
}

/// Bytes of one direction and the time in which any copy of it was under way: two that share the
/// engine count once.
LinkSample link_sample(const std::vector<TimedSpan>& spans, LaneKind parameters,
                       LaneKind activations) {
  LinkSample sample;
  std::vector<std::pair<int64_t, int64_t>> intervals;
  for (const TimedSpan& item : spans) {
    if (item.span->lane != parameters && item.span->lane != activations) continue;
    sample.bytes += item.span->bytes;
    intervals.emplace_back(item.start_ns, item.end_ns);
  }
  std::sort(intervals.begin(), intervals.end());
  int64_t done = std::numeric_limits<int64_t>::min();
  for (const auto& [start, end] : intervals) {
    if (end <= done) continue;
    sample.busy_ns += end - std::max(start, done);
    done = end;
  }
  return sample;
}

}  // namespace

Result<IterationReport> report_iteration(const PlanContext& context,
                                         const std::vector<DeviceLane*>& lanes, Trace* trace) {
  IterationReport report;
  int64_t first_start = std::numeric_limits<int64_t>::max();
  int64_t last_end = std::numeric_limits<int64_t>::min();
  int64_t idle = 0;
  std::vector<std::vector<int64_t>> durations(lanes.size());
  report.device_busy_ns.assign(lanes.size(), 0);
  for (size_t device = 0; device < lanes.size(); ++device) {
    const LaneRecord& record = lanes[device]->record(context.record);
    STAGECOACH_ASSIGN_OR_RETURN(std::vector<TimedSpan> spans, time_spans(record));
    if (trace != nullptr) {
      const std::vector<int>& processes = context.trace_processes;
      int process = processes.empty() ? static_cast<int>(device) : processes[device];
      add_slices(*trace, process, spans, context.input->iteration);
    }
    size_t action_count = context.plan->device_actions[device].size();
    durations[device].resize(action_count, 0);
    std::vector<int64_t>& ends = report.action_end_ns.emplace_back(action_count, 0);
    STAGECOACH_ASSIGN_OR_RETURN(std::vector<int64_t> stalls, time_stalls(record, action_count));
    for (const TimedSpan& item : spans) {
      report.longest_operation_ns =
          std::max(report.longest_operation_ns, item.end_ns - item.start_ns);
      if (item.span->lane != LaneKind::kCompute) continue;
      int64_t busy_ns = item.end_ns - item.start_ns - stalls[item.span->action];
      report.device_busy_ns[device] += busy_ns;
      durations[device][item.span->action] = busy_ns;
      ends[item.span->action] = item.end_ns;
      first_start = std::min(first_start, item.start_ns);
      last_end = std::max(last_end, item.end_ns);
    }
    report.compute_busy_ns += report.device_busy_ns[device];
    if (context.input->times_layers) {
      report.up.push_back(link_sample(spans, LaneKind::kParameterUp, LaneKind::kActivationUp));
      report.down.push_back(link_sample(spans, LaneKind::kGradientDown, LaneKind::kActivationDown));
      STAGECOACH_RETURN_IF_ERROR(
          add_layer_samples(record, static_cast<int>(device), report.layer_samples));
    }
    idle += ready_idle_ns(spans, action_count);
    report.bytes_up += record.bytes_up;
    report.bytes_down += record.bytes_down;
  }
  if (last_end <= first_start) return report;
  report.start_ns = first_start;
  report.span_ns = last_end - first_start;
  double available = static_cast<double>(report.span_ns) * static_cast<double>(lanes.size());
  report.bubble = 1 - static_cast<double>(report.compute_busy_ns) / available;
  report.controller_fraction = static_cast<double>(idle) / available;
  PlanTimeline simulated =
      simulate_plan(*context.plan, static_cast<int>(context.network->layers.size()),
                    [&](int device, int index) { return durations[device][index]; });
  report.bubble_simulated = measure_timeline(*context.plan, simulated).bubble_makespan;
  report.action_ns = std::move(durations);
  return report;
}

}  // namespace stagecoach
