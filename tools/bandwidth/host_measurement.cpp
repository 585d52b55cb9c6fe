#include "tools/bandwidth/host_measurement.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/clock.h"
#include "tools/bandwidth/units.h"

namespace stagecoach {

namespace {

constexpr ByteCount kHostPieceBytes = kMiB;  ///< that one thread takes at a time
constexpr int kHostPoison = 0xEE;
constexpr uint64_t kWritten = 0x0123456789ABCDEF;

MeasurementInfo complete_host_info(MeasurementInfo info, ByteCount size_bytes) {
  info.quantities = {{"payload", "GB/s"}, {"dram", "GB/s"}};
  info.payload_bytes = size_bytes;
  info.directions = 0;
  return info;
}

}  // namespace

const char* host_kernel_name(HostKernel kernel) {
  switch (kernel) {
    case HostKernel::kRead:
      return "read";
    case HostKernel::kWrite:
      return "write";
    case HostKernel::kCopy:
      return "copy";
  }
  return "unknown";
}

Status HostArrays::open() {
  if (source.data() != nullptr) return Status::ok();
  STAGECOACH_ASSIGN_OR_RETURN(target, PageableMemory::create(size_bytes));
  STAGECOACH_ASSIGN_OR_RETURN(PageableMemory pages, PageableMemory::create(size_bytes));
  if (placement != nullptr) {
    placement->place(target.data(), size_bytes);
    placement->place(pages.data(), size_bytes);
  }
  // Pages that were never touched all are one page of zeros.
  for (ByteCount begin = 0; begin < size_bytes; begin += kHostPieceBytes) {
    int value = static_cast<int>(begin / kHostPieceBytes % 251 + 1);
    std::memset(pages.data() + begin, value, static_cast<size_t>(kHostPieceBytes));
  }
  std::memset(target.data(), kHostPoison, static_cast<size_t>(size_bytes));
  source = std::move(pages);
  return Status::ok();
}

HostMeasurement::HostMeasurement(MeasurementInfo info, HostKernel kernel, int threads,
                                 std::shared_ptr<HostArrays> arrays, ThreadPlace place)
    : Measurement(complete_host_info(std::move(info), arrays->size_bytes)),
      kernel_(kernel),
      threads_(threads),
      arrays_(std::move(arrays)),
      place_(std::move(place)) {}

Status HostMeasurement::prepare() {
  pool_ = create_pool_at(place_, threads_);
  STAGECOACH_RETURN_IF_ERROR(arrays_->open());
  std::string doubt = doubt_of(arrays_->placement.get(), place_);
  is_unverified_ = !doubt.empty();
  if (is_unverified_) set_param("placement", doubt);
  return Status::ok();
}

Status HostMeasurement::poison() {
  if (kernel_ != HostKernel::kCopy) return Status::ok();
  std::memset(arrays_->target.data(), kHostPoison, static_cast<size_t>(arrays_->size_bytes));
  return Status::ok();
}

void HostMeasurement::run_piece(ByteCount begin, ByteCount size) {
  if (kernel_ == HostKernel::kCopy) {
    std::memcpy(arrays_->target.data() + begin, arrays_->source.data() + begin,
                static_cast<size_t>(size));
    return;
  }
  if (kernel_ == HostKernel::kWrite) {
    std::fill_n(reinterpret_cast<uint64_t*>(arrays_->target.data() + begin), size / 8, kWritten);
    return;
  }
  const auto* words = reinterpret_cast<const uint64_t*>(arrays_->source.data() + begin);
  uint64_t sum = 0;
  for (ByteCount word = 0; word < size / 8; ++word) sum += words[word];
  sum_.fetch_add(sum, std::memory_order_relaxed);
}

Result<Batch> HostMeasurement::run(int64_t repeats, int64_t /*deadline_ns*/) {
  Batch batch;
  static_cast<void>(run_at(place_, [&] {
    int64_t start_ns = RealClock::instance().now_ns();
    for (int64_t repeat = 0; repeat < repeats; ++repeat) {
      pool_->parallel_for(arrays_->size_bytes / kHostPieceBytes, [this](int64_t piece) {
        run_piece(piece * kHostPieceBytes, kHostPieceBytes);
      });
    }
    batch.duration_ns = std::max<int64_t>(1, RealClock::instance().now_ns() - start_ns);
  }));
  if (is_unverified_) batch.flags.push_back(SampleFlag::kUnverified);
  double rate =
      static_cast<double>(repeats * arrays_->size_bytes) / static_cast<double>(batch.duration_ns);
  double passes = kernel_ == HostKernel::kCopy ? 2 : 1;
  batch.samples = {{rate * kNsPerSecond / kBytesPerGb},
                   {passes * rate * kNsPerSecond / kBytesPerGb}};
  return batch;
}

Result<DataCheck> HostMeasurement::check(int64_t /*deadline_ns*/) {
  DataCheck check;
  if (kernel_ != HostKernel::kCopy) return check;
  check.bytes = arrays_->size_bytes;
  auto size = static_cast<size_t>(arrays_->size_bytes);
  if (std::memcmp(arrays_->source.data(), arrays_->target.data(), size) != 0) check.wrong_bytes = 1;
  return check;
}

}  // namespace stagecoach
