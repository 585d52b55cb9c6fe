#include "tools/bandwidth/urgent_measurement.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "core/clock.h"
#include "tools/bandwidth/units.h"

namespace stagecoach {

namespace {

constexpr double kUrgentShare = 3.0 / 55;  ///< of the link: about what activations take
constexpr int64_t kMostUrgentCopies = 500;
constexpr int64_t kUrgentPoisonLimitNs = 60'000'000'000;
constexpr double kNsPerMs = 1e6;

MeasurementInfo complete_info(MeasurementInfo info, const UrgentShape& shape) {
  info.quantities = {{"latency", "ms"}, {"wait", "ms"}, {"total", "GB/s"}, {"bulk_alone", "GB/s"}};
  info.payload_bytes = shape.urgent_bytes;
  return info;
}

}  // namespace

UrgentMeasurement::UrgentMeasurement(MeasurementInfo info, std::shared_ptr<TransferMemory> memory,
                                     const UrgentShape& shape)
    : Measurement(complete_info(std::move(info), shape)),
      memory_(std::move(memory)),
      shape_(shape) {
  if (memory_->placement() != nullptr) set_param("node", memory_->placement()->node());
}

int64_t UrgentMeasurement::most_repeats() const {
  return kMostUrgentCopies;
}

/// The end of the ring is for urgent copies.
ByteCount UrgentMeasurement::bulk_bytes() const {
  return memory_->ring_bytes() - shape_.urgent_bytes;
}

ProbeMemory UrgentMeasurement::probe_memory() const {
  CopyRequest bulk = memory_->request(shape_.direction, 0, bulk_bytes());
  CopyRequest urgent = memory_->request(shape_.direction, bulk_bytes(), shape_.urgent_bytes);
  if (shape_.direction == LinkDirection::kUp) {
    return {bulk.target, bulk.source, urgent.target, urgent.source};
  }
  return {bulk.source, bulk.target, urgent.source, urgent.target};
}

Status UrgentMeasurement::prepare() {
  if (memory_->device().virtual_time() != nullptr) {
    return unimplemented("urgent copies are not measured on simulated devices");
  }
  STAGECOACH_RETURN_IF_ERROR(memory_->open());
  if (bulk_bytes() < shape_.chunk_bytes) {
    return resource_exhausted(
        fmt::format("a chunk of {} and an urgent copy of {} do not fit the memory that copies move "
                    "({}); give --working-set",
                    format_bytes(shape_.chunk_bytes), format_bytes(shape_.urgent_bytes),
                    format_bytes(memory_->ring_bytes())));
  }
  return Status::ok();
}

Status UrgentMeasurement::measure_bulk_alone(int64_t deadline_ns) {
  TransferProbe alone;
  alone.up = shape_.direction == LinkDirection::kUp;
  alone.method = BulkMethod::kWhole;
  alone.deadline_ns = deadline_ns;
  for (int turn = 0; turn < 2; ++turn) {
    STAGECOACH_ASSIGN_OR_RETURN(TransferProbeResult result,
                                run_transfer_probe(memory_->device(), probe_memory(), alone));
    bytes_per_s_ = result.bytes_per_s;
  }
  return Status::ok();
}

Result<Batch> UrgentMeasurement::run(int64_t repeats, int64_t deadline_ns) {
  if (bytes_per_s_ <= 0) STAGECOACH_RETURN_IF_ERROR(measure_bulk_alone(deadline_ns));
  TransferProbe probe;
  probe.deadline_ns = deadline_ns;
  probe.up = shape_.direction == LinkDirection::kUp;
  probe.method = shape_.method;
  probe.chunk_bytes = shape_.chunk_bytes;
  probe.ahead = shape_.ahead;
  probe.urgent_copies = static_cast<int>(repeats);
  double interval_s = static_cast<double>(shape_.urgent_bytes) / (bytes_per_s_ * kUrgentShare);
  probe.urgent_interval_ns = static_cast<int64_t>(interval_s * kNsPerSecond);
  // Bulk lasts longer than urgent copies are asked for.
  double bulk_s = interval_s * static_cast<double>(repeats + 1);
  probe.bulk_bytes = static_cast<ByteCount>(bytes_per_s_ * bulk_s);
  probe.seed = next_seed_++;
  int64_t overrun_before_ns = memory_->device().counters().copy_overrun_ns;
  STAGECOACH_ASSIGN_OR_RETURN(TransferProbeResult result,
                              run_transfer_probe(memory_->device(), probe_memory(), probe));
  Batch batch;
  batch.duration_ns = static_cast<int64_t>(bulk_s * kNsPerSecond);
  batch.samples.resize(info().quantities.size());
  for (const UrgentTime& one : result.urgent) {
    batch.samples[0].push_back(static_cast<double>(one.total_ns()) / kNsPerMs);
    batch.samples[1].push_back(static_cast<double>(one.queue_ns + one.copy_ns) / kNsPerMs);
  }
  batch.samples[2].push_back(result.bytes_per_s / kBytesPerGb);
  batch.samples[3].push_back(bytes_per_s_ / kBytesPerGb);
  batch.flag_overrun(memory_->device().counters().copy_overrun_ns - overrun_before_ns);
  return batch;
}

Status UrgentMeasurement::poison() {
  int64_t deadline_ns = RealClock::instance().now_ns() + kUrgentPoisonLimitNs;
  return memory_->poison(shape_.direction, memory_->ring_bytes(), deadline_ns);
}

Result<DataCheck> UrgentMeasurement::check(int64_t deadline_ns) {
  return memory_->check(shape_.direction, memory_->ring_bytes(), deadline_ns);
}

}  // namespace stagecoach
