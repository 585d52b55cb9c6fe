#include "tools/bandwidth/pin_limit.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>
#include <vector>

#include "tools/bandwidth/memory_steps.h"
#include "tools/bandwidth/units.h"

namespace stagecoach {

namespace {

/// More is not pinned for the sake of measuring.
constexpr ByteCount kMostOfACard = 8 * kGiB, kMostOfAMock = 64 * kMiB;

MeasurementRecord record_of(MeasurementInfo info, const Result<ChildOutcome>& outcome) {
  MeasurementRecord record;
  record.info = std::move(info);
  record.samples.resize(record.info.quantities.size());
  record.statistics.resize(record.info.quantities.size());
  if (!outcome.is_ok()) {
    bool is_interrupted = outcome.status().code() == StatusCode::kCancelled;
    record.status = is_interrupted ? MeasurementStatus::kNotRun : MeasurementStatus::kFailed;
    record.reason = outcome.status().message();
    return record;
  }
  StepsOutcome steps = read_steps(*outcome);
  record.info.params["stopped"] = steps.stopped.empty() ? Json() : Json(steps.stopped);
  record.info.params["is_poisoned"] = steps.is_poisoned;
  record.info.payload_bytes = steps.bytes;
  if (steps.bytes == 0) {
    record.status = MeasurementStatus::kSkipped;
    record.reason = "nothing could be pinned: " + steps.stopped;
    return record;
  }
  double gib = static_cast<double>(steps.bytes) / static_cast<double>(kGiB);
  record.samples = {{gib}, {static_cast<double>(steps.time_ns) / kNsPerSecond / gib}};
  for (size_t at = 0; at < record.samples.size(); ++at) {
    record.statistics[at] = summarize(record.samples[at]);
  }
  record.repeats = 1;
  record.status = MeasurementStatus::kOk;
  return record;
}

void add_limit(GroupBuilder& builder, MemoryKind kind, ByteCount most) {
  const std::string& name = builder.devices().front().device->id();
  MeasurementInfo info;
  info.id = fmt::format("pin/limit/{}/{}", name, memory_kind_name(kind));
  info.group = "pin";
  info.params = copy_params(name, "none", kind, most);
  info.quantities = {{"limit", "GiB"}, {"pin", "s/GiB"}};
  info.directions = 0;
  BandwidthGroup group = builder.start("pin");
  group.ids = {info.id};
  group.pinned_bytes = most;
  std::vector<std::string> arguments = {"pin_steps", "--mem", std::string(memory_kind_name(kind)),
                                        "--max-pinned", std::to_string(most)};
  group.run = [info = std::move(info), arguments = std::move(arguments),
               run = builder.options().run_steps](const RepetitionOptions& sampling,
                                                  BandwidthReport& report) {
    bool is_cancelled = sampling.is_cancelled && sampling.is_cancelled();
    report.records.push_back(record_of(
        info, is_cancelled ? Result<ChildOutcome>(cancelled("interrupted")) : run(arguments)));
  };
  builder.push(std::move(group));
}

}  // namespace

void add_pin_limits(GroupBuilder& builder) {
  if (!builder.options().run_steps) return;
  // The limit is the host's: one device tells.
  Device& device = *builder.devices().front().device;
  if (device.virtual_time() != nullptr) return;
  ByteCount most = std::min(builder.free_bytes() / 4,
                            device.info().is_real_hardware ? kMostOfACard : kMostOfAMock);
  if (builder.options().max_pinned > 0) most = builder.options().max_pinned;
  for (MemoryKind kind : {MemoryKind::kHostPinned, MemoryKind::kHostRegistered}) {
    add_limit(builder, kind, most);
  }
}

}  // namespace stagecoach
