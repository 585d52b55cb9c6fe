#include "tools/bandwidth/layer_measurement.h"

#include <algorithm>
#include <utility>

#include "hal/op_tape.h"
#include "scheduler/op_rates_json.h"
#include "tools/bandwidth/await.h"
#include "tools/bandwidth/statistics.h"

namespace stagecoach {

namespace {

constexpr double kNsPerMs = 1e6;

MeasurementInfo complete_layer_info(MeasurementInfo info) {
  info.quantities = {{"time", "ms"}};
  info.payload_bytes = 0;
  info.directions = 0;
  return info;
}

}  // namespace

LayerMeasurement::LayerMeasurement(MeasurementInfo info, Device& device, LayerSubject subject,
                                   LayerPhase phase)
    : Measurement(complete_layer_info(std::move(info))),
      device_(device),
      subject_(std::move(subject)),
      phase_(phase) {}

Status LayerMeasurement::prepare() {
  if (layer_) return Status::ok();
  STAGECOACH_ASSIGN_OR_RETURN(stream_, device_.create_stream({"layer"}));
  STAGECOACH_ASSIGN_OR_RETURN(
      std::unique_ptr<SingleLayer> layer,
      SingleLayer::create(device_, *stream_, *subject_.network, subject_.layer, subject_.shape));
  STAGECOACH_RETURN_IF_ERROR(layer->fill_randomly(subject_.vocabulary, 1));
  // Backward reads what this leaves.
  STAGECOACH_RETURN_IF_ERROR(layer->run(LayerPhase::kSavingForward, device_.ops()));
  OpTape tape;
  STAGECOACH_RETURN_IF_ERROR(layer->run(phase_, tape));
  calls_ = tape.calls();
  op_times_ns_.resize(calls_.size());
  while (events_.size() < calls_.size() + 1) {
    STAGECOACH_ASSIGN_OR_RETURN(std::unique_ptr<Event> event, device_.create_event({true}));
    events_.push_back(std::move(event));
  }
  STAGECOACH_RETURN_IF_ERROR(stream_->synchronize());
  layer_ = std::move(layer);
  return Status::ok();
}

/// Of one pass, in ns.
Result<double> LayerMeasurement::time_passes(int64_t repeats, int64_t deadline_ns) {
  Event &start = *events_.front(), &end = *events_.back();
  STAGECOACH_RETURN_IF_FAILED(stream_->record(start));
  for (int64_t repeat = 0; repeat < repeats; ++repeat) {
    STAGECOACH_RETURN_IF_ERROR(layer_->run(phase_, device_.ops()));
  }
  STAGECOACH_RETURN_IF_FAILED(stream_->record(end));
  STAGECOACH_RETURN_IF_ERROR(await_timepoint(device_, end.timepoint(), deadline_ns));
  STAGECOACH_ASSIGN_OR_RETURN(int64_t start_ns, start.timestamp_ns());
  STAGECOACH_ASSIGN_OR_RETURN(int64_t end_ns, end.timestamp_ns());
  return std::max(1.0, static_cast<double>(end_ns - start_ns)) / static_cast<double>(repeats);
}

Status LayerMeasurement::time_operations(double pass_ns, int64_t deadline_ns) {
  STAGECOACH_RETURN_IF_FAILED(stream_->record(*events_.front()));
  for (size_t index = 0; index < calls_.size(); ++index) {
    STAGECOACH_RETURN_IF_FAILED(device_.ops().run(*stream_, calls_[index]));
    STAGECOACH_RETURN_IF_FAILED(stream_->record(*events_[index + 1]));
  }
  STAGECOACH_RETURN_IF_ERROR(await_timepoint(device_, events_.back()->timepoint(), deadline_ns));
  std::vector<double> times;
  double sum = 0;
  STAGECOACH_ASSIGN_OR_RETURN(int64_t before_ns, events_.front()->timestamp_ns());
  for (size_t index = 0; index < calls_.size(); ++index) {
    STAGECOACH_ASSIGN_OR_RETURN(int64_t after_ns, events_[index + 1]->timestamp_ns());
    times.push_back(std::max(1.0, static_cast<double>(after_ns - before_ns)));
    sum += times.back();
    before_ns = after_ns;
  }
  // What an event costs is the same for each operation, as long as it is not more than it takes.
  double event_ns = std::max(0.0, sum - pass_ns) / static_cast<double>(calls_.size());
  double left = 0;
  for (double& time : times) left += time = std::max(time / 2, time - event_ns);
  for (size_t index = 0; index < times.size(); ++index) {
    op_times_ns_[index].push_back(times[index] * pass_ns / left);
  }
  return Status::ok();
}

Result<Batch> LayerMeasurement::run(int64_t repeats, int64_t deadline_ns) {
  int64_t overrun_before_ns = device_.counters().overrun_ns;
  STAGECOACH_ASSIGN_OR_RETURN(double pass_ns, time_passes(repeats, deadline_ns));
  Batch batch;
  batch.duration_ns = static_cast<int64_t>(pass_ns * static_cast<double>(repeats));
  batch.samples = {{pass_ns / kNsPerMs}};
  batch.flag_overrun(device_.counters().overrun_ns - overrun_before_ns);
  STAGECOACH_RETURN_IF_ERROR(time_operations(pass_ns, deadline_ns));
  return batch;
}

Json LayerMeasurement::details() const {
  std::vector<TimedOp> ops;
  for (size_t index = 0; index < calls_.size(); ++index) {
    if (op_times_ns_[index].empty()) continue;
    ops.push_back({op_shape(calls_[index]), summarize(op_times_ns_[index]).median});
  }
  if (ops.empty()) return {};
  Json json = Json::object();
  json["ops"] = to_json(ops);
  return json;
}

}  // namespace stagecoach
