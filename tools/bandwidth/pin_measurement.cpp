#include "tools/bandwidth/pin_measurement.h"

#include <cstring>
#include <utility>

#include "core/clock.h"
#include "tools/bandwidth/pinned_memory.h"
#include "tools/bandwidth/units.h"

namespace stagecoach {

namespace {

MeasurementInfo complete_pin_info(MeasurementInfo info, ByteCount size_bytes) {
  info.quantities = {{"pin", "s/GiB"}, {"free", "s/GiB"}};
  info.payload_bytes = size_bytes;
  info.directions = 0;
  return info;
}

}  // namespace

PinMeasurement::PinMeasurement(MeasurementInfo info, Device& device, MemoryKind kind,
                               ByteCount size_bytes)
    : Measurement(complete_pin_info(std::move(info), size_bytes)),
      device_(device),
      kind_(kind),
      size_bytes_(size_bytes) {}

Status PinMeasurement::prepare() {
  if (kind_ != MemoryKind::kHostRegistered) return Status::ok();
  STAGECOACH_ASSIGN_OR_RETURN(pages_, PageableMemory::create(size_bytes_));
  std::memset(pages_.data(), 1, static_cast<size_t>(size_bytes_));
  return Status::ok();
}

Result<BufferHandle> PinMeasurement::pin() {
  if (kind_ == MemoryKind::kHostRegistered) {
    return device_.register_host(pages_.data(), size_bytes_, "pin");
  }
  return require_pinned(device_.allocate_pinned(size_bytes_, "pin"), device_, size_bytes_);
}

Result<Batch> PinMeasurement::run(int64_t /*repeats*/, int64_t /*deadline_ns*/) {
  const RealClock& clock = RealClock::instance();
  int64_t start_ns = clock.now_ns();
  STAGECOACH_ASSIGN_OR_RETURN(BufferHandle buffer, pin());
  int64_t pinned_ns = clock.now_ns();
  buffer.reset();
  int64_t end_ns = clock.now_ns();
  double gib = static_cast<double>(size_bytes_) / static_cast<double>(kGiB);
  auto per_gib = [gib](int64_t time_ns) {
    return static_cast<double>(time_ns) / kNsPerSecond / gib;
  };
  Batch batch;
  batch.duration_ns = end_ns - start_ns;
  batch.samples = {{per_gib(pinned_ns - start_ns)}, {per_gib(end_ns - pinned_ns)}};
  return batch;
}

}  // namespace stagecoach
