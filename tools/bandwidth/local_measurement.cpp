#include "tools/bandwidth/local_measurement.h"

#include <algorithm>
#include <utility>

#include "core/clock.h"
#include "tools/bandwidth/await.h"
#include "tools/bandwidth/transfer_memory.h"
#include "tools/bandwidth/units.h"

namespace stagecoach {

namespace {

constexpr int64_t kLocalSlots = 4;
constexpr int64_t kLocalPrepareNs = 20'000'000'000;
constexpr double kDramOfPayload = 2;

MeasurementInfo complete_local_info(MeasurementInfo info, ByteCount chunk_bytes) {
  info.quantities = {{"payload", "GB/s"}, {"dram", "GB/s"}};
  info.payload_bytes = chunk_bytes;
  info.directions = 0;
  return info;
}

}  // namespace

LocalMeasurement::LocalMeasurement(MeasurementInfo info, Device& device, ByteCount chunk_bytes,
                                   uint64_t seed, TaskPool& pool)
    : Measurement(complete_local_info(std::move(info), chunk_bytes)),
      device_(device),
      chunk_bytes_(chunk_bytes),
      seed_(seed),
      pool_(pool) {}

BufferView LocalMeasurement::source(ByteCount offset, ByteCount size) const {
  return memory_->slice(offset, size);
}

BufferView LocalMeasurement::target(ByteCount offset, ByteCount size) const {
  return memory_->slice(kLocalSlots * chunk_bytes_ + offset, size);
}

Status LocalMeasurement::copy_now(const CopyRequest& request, int64_t deadline_ns) {
  STAGECOACH_ASSIGN_OR_RETURN(Timepoint end, stream_->copy(request));
  return await_timepoint(device_, end, deadline_ns);
}

Status LocalMeasurement::prepare() {
  ByteCount ring = kLocalSlots * chunk_bytes_;
  STAGECOACH_ASSIGN_OR_RETURN(stream_, device_.create_stream({"local"}));
  STAGECOACH_ASSIGN_OR_RETURN(start_, device_.create_event({.timing = true}));
  STAGECOACH_ASSIGN_OR_RETURN(end_, device_.create_event({.timing = true}));
  STAGECOACH_ASSIGN_OR_RETURN(
      memory_, require_buffer(device_.allocate(2 * ring, "local"), device_, 2 * ring, "local"));
  if (!holds_data()) return Status::ok();
  for (BufferHandle* memory : {&pattern_, &landing_}) {
    STAGECOACH_ASSIGN_OR_RETURN(
        *memory, require_buffer(device_.allocate_pinned(ring, "local"), device_, ring, "local"));
  }
  fill_pattern(pattern_->host_data(), ring, seed_, pool_);
  return copy_now({source(0, ring), pattern_->view(), "local pattern"},
                  RealClock::instance().now_ns() + kLocalPrepareNs);
}

Result<Batch> LocalMeasurement::run(int64_t repeats, int64_t deadline_ns) {
  chunks_ = repeats;
  // The first chunk runs before the clock starts: what it takes to begin is not measured.
  Status status;
  for (int64_t chunk = 0; chunk <= chunks_ && status.is_ok(); ++chunk) {
    ByteCount offset = chunk % kLocalSlots * chunk_bytes_;
    status = stream_->copy({target(offset, chunk_bytes_), source(offset, chunk_bytes_), "local"})
                 .status();
    if (status.is_ok() && chunk == 0) status = stream_->record(*start_).status();
  }
  if (status.is_ok()) status = stream_->record(*end_).status();
  if (status.is_ok()) status = await_timepoint(device_, stream_->last_submitted(), deadline_ns);
  if (!status.is_ok()) {
    stream_->abandon(status);
    return status;
  }
  STAGECOACH_ASSIGN_OR_RETURN(int64_t start_ns, start_->timestamp_ns());
  STAGECOACH_ASSIGN_OR_RETURN(int64_t end_ns, end_->timestamp_ns());
  Batch batch;
  batch.duration_ns = std::max<int64_t>(1, end_ns - start_ns);
  double payload = static_cast<double>(chunks_ * chunk_bytes_) /
                   static_cast<double>(batch.duration_ns) * kNsPerSecond / kBytesPerGb;
  batch.samples = {{payload}, {kDramOfPayload * payload}};
  return batch;
}

Status LocalMeasurement::poison() {
  if (!holds_data()) return Status::ok();
  constexpr uint32_t kLocalPoison = 0xEE;
  STAGECOACH_ASSIGN_OR_RETURN(Timepoint end, stream_->fill({target(0, kLocalSlots * chunk_bytes_),
                                                            kLocalPoison, 1, "local poison"}));
  return await_timepoint(device_, end, RealClock::instance().now_ns() + kLocalPrepareNs);
}

Result<DataCheck> LocalMeasurement::check(int64_t deadline_ns) {
  if (!holds_data()) return DataCheck{};
  ByteCount size = std::min(chunks_ + 1, kLocalSlots) * chunk_bytes_;
  STAGECOACH_RETURN_IF_ERROR(
      copy_now({landing_->slice(0, size), target(0, size), "local check"}, deadline_ns));
  return compare_bytes(pattern_->host_data(), landing_->host_data(), size, pool_);
}

}  // namespace stagecoach
