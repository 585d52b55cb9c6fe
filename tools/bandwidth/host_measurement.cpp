#include "tools/bandwidth/host_measurement.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "core/clock.h"
#include "core/dtype.h"
#include "core/multiversion.h"
#include "memory/gradient_sum.h"
#include "tools/bandwidth/units.h"
#include "train/bfloat16_rounding.h"

namespace stagecoach {

namespace {

constexpr ByteCount kHostPieceBytes = kMiB;  ///< that one thread takes at a time
constexpr int kHostPoison = 0xEE;
constexpr uint64_t kWritten = 0x0123456789ABCDEF;
constexpr float kTriadFactor = 2;  ///< its product is exact, so that a fused sum is the same

MeasurementInfo complete_host_info(MeasurementInfo info, HostKernel kernel, ByteCount size_bytes) {
  info.quantities = {{"payload", "GB/s"}, {"dram", "GB/s"}};
  info.payload_bytes = host_pass_bytes(kernel, size_bytes).payload;
  info.directions = 0;
  return info;
}

/// Word `index` of the source. Without the top exponent bit of either half and with the one below,
/// it and both halves are finite, no denormals and below 2; the other bits take all values.
uint32_t source_word(uint64_t index) {
  auto mixed = static_cast<uint32_t>(index * 0x9E3779B97F4A7C15ull >> 32);
  return (mixed & 0xBFFFBFFFu) | 0x20002000u;
}

STAGECOACH_MULTIVERSION
void triad(const float* __restrict first, const float* __restrict second, float* __restrict target,
           int64_t count) {
  for (int64_t i = 0; i < count; ++i) target[i] = first[i] + kTriadFactor * second[i];
}

/// Counts elements of `found` that are not what `expected(index)` gives, bit by bit.
template <typename Value, typename Expected>
DataCheck compare_elements(const Value* found, int64_t count, Expected expected) {
  DataCheck check;
  check.bytes = count * static_cast<int64_t>(sizeof(Value));
  for (int64_t i = 0; i < count; ++i) {
    Value wanted = expected(i);
    if (std::memcmp(&wanted, found + i, sizeof(Value)) == 0) continue;
    if (check.first_wrong < 0) check.first_wrong = i * static_cast<int64_t>(sizeof(Value));
    check.wrong_bytes += static_cast<int64_t>(sizeof(Value));
  }
  return check;
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
    case HostKernel::kTriad:
      return "triad";
    case HostKernel::kConvert:
      return "convert";
    case HostKernel::kAccumulate:
      return "accumulate";
  }
  return "unknown";
}

HostPassBytes host_pass_bytes(HostKernel kernel, ByteCount size_bytes) {
  switch (kernel) {
    case HostKernel::kRead:
    case HostKernel::kWrite:
      return {size_bytes, size_bytes};
    case HostKernel::kCopy:
      return {size_bytes, 2 * size_bytes};
    case HostKernel::kTriad:  // both halves of the source, onto half of the target
      return {size_bytes / 2, 3 * size_bytes / 2};
    case HostKernel::kConvert:  // reads 4 bytes a number, writes 2
      return {size_bytes / 2, 3 * size_bytes / 2};
    case HostKernel::kAccumulate:  // reads 2 and 4 bytes a number, writes 4
      return {size_bytes / 2, 5 * size_bytes / 2};
  }
  return {};
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
  auto* words = reinterpret_cast<uint32_t*>(pages.data());
  for (ByteCount word = 0; word < size_bytes / 4; ++word) {
    words[word] = source_word(static_cast<uint64_t>(word));
  }
  std::memset(target.data(), 0, static_cast<size_t>(size_bytes));
  source = std::move(pages);
  return Status::ok();
}

HostMeasurement::HostMeasurement(MeasurementInfo info, HostKernel kernel, int threads,
                                 std::shared_ptr<HostArrays> arrays, ThreadPlace place)
    : Measurement(complete_host_info(std::move(info), kernel, arrays->size_bytes)),
      kernel_(kernel),
      threads_(threads),
      arrays_(std::move(arrays)),
      place_(std::move(place)) {}

Status HostMeasurement::prepare() {
  if (!pool_) pool_ = create_pool_at(place_, threads_);
  STAGECOACH_RETURN_IF_ERROR(arrays_->open());
  std::string doubt = doubt_of(arrays_->placement.get(), place_);
  is_unverified_ = !doubt.empty();
  if (is_unverified_) set_param("placement", doubt);
  return Status::ok();
}

Status HostMeasurement::poison() {
  // Sums begin at zero, so that they can be told.
  int value = kernel_ == HostKernel::kAccumulate ? 0 : kHostPoison;
  std::memset(arrays_->target.data(), value, static_cast<size_t>(arrays_->size_bytes));
  passes_ = 0;
  sum_ = 0;
  return Status::ok();
}

void HostMeasurement::run_piece(ByteCount begin, ByteCount size) {
  std::byte* target = arrays_->target.data();
  const std::byte* source = arrays_->source.data();
  if (kernel_ == HostKernel::kCopy) {
    std::memcpy(target + begin, source + begin, static_cast<size_t>(size));
    return;
  }
  if (kernel_ == HostKernel::kWrite) {
    std::fill_n(reinterpret_cast<uint64_t*>(target + begin), size / 8, kWritten);
    return;
  }
  const auto* numbers = reinterpret_cast<const float*>(source + begin);
  if (kernel_ == HostKernel::kConvert) {
    round_to_bfloat16(numbers, reinterpret_cast<BFloat16*>(target + begin / 2), size / 4);
    return;
  }
  if (kernel_ == HostKernel::kTriad) {
    const auto* second = reinterpret_cast<const float*>(source + arrays_->size_bytes / 2 + begin);
    triad(numbers, second, reinterpret_cast<float*>(target + begin), size / 4);
    return;
  }
  const auto* words = reinterpret_cast<const uint64_t*>(source + begin);
  uint64_t sum = 0;
  for (ByteCount word = 0; word < size / 8; ++word) sum += words[word];
  sum_.fetch_add(sum, std::memory_order_relaxed);
}

void HostMeasurement::run_pass() {
  ByteCount size = arrays_->size_bytes, piece_bytes = kHostPieceBytes;
  if (kernel_ == HostKernel::kAccumulate) {
    add_gradients(arrays_->source.data(), DType::kBF16,
                  reinterpret_cast<float*>(arrays_->target.data()), size / 4, false, *pool_);
    return;
  }
  if (kernel_ == HostKernel::kTriad) {
    size /= 2;
    piece_bytes /= 2;
  }
  pool_->parallel_for(size / piece_bytes,
                      [=, this](int64_t piece) { run_piece(piece * piece_bytes, piece_bytes); });
}

Result<Batch> HostMeasurement::run(int64_t repeats, int64_t /*deadline_ns*/) {
  Batch batch;
  static_cast<void>(run_at(place_, [&] {
    int64_t start_ns = RealClock::instance().now_ns();
    for (int64_t repeat = 0; repeat < repeats; ++repeat) run_pass();
    batch.duration_ns = std::max<int64_t>(1, RealClock::instance().now_ns() - start_ns);
  }));
  passes_ += repeats;
  if (is_unverified_) batch.flags.push_back(SampleFlag::kUnverified);
  HostPassBytes bytes = host_pass_bytes(kernel_, arrays_->size_bytes);
  double passes_per_s =
      static_cast<double>(repeats) / static_cast<double>(batch.duration_ns) * kNsPerSecond;
  for (ByteCount one : {bytes.payload, bytes.dram}) {
    batch.samples.push_back({static_cast<double>(one) * passes_per_s / kBytesPerGb});
  }
  return batch;
}

Result<DataCheck> HostMeasurement::check(int64_t /*deadline_ns*/) {
  const std::byte* source = arrays_->source.data();
  const std::byte* target = arrays_->target.data();
  const auto* numbers = reinterpret_cast<const float*>(source);
  const auto* results = reinterpret_cast<const float*>(target);
  int64_t count = arrays_->size_bytes / 4;
  switch (kernel_) {
    case HostKernel::kRead: {
      const auto* words = reinterpret_cast<const uint64_t*>(source);
      uint64_t sum = std::accumulate(words, words + count / 2, uint64_t{0});
      bool is_right = sum_.load() == sum * static_cast<uint64_t>(passes_);
      return DataCheck{arrays_->size_bytes, is_right ? 0 : arrays_->size_bytes, is_right ? -1 : 0};
    }
    case HostKernel::kWrite:
      return compare_elements(reinterpret_cast<const uint64_t*>(target), count / 2,
                              [](int64_t) { return kWritten; });
    case HostKernel::kCopy:
      return compare_elements(results, count, [=](int64_t i) { return numbers[i]; });
    case HostKernel::kTriad:
      return compare_elements(results, count / 2, [=](int64_t i) {
        return numbers[i] + kTriadFactor * numbers[count / 2 + i];
      });
    case HostKernel::kConvert:
      return compare_elements(reinterpret_cast<const BFloat16*>(target), count,
                              [=](int64_t i) { return to_bfloat16(numbers[i]); });
    case HostKernel::kAccumulate:
      break;
  }
  const auto* gradients = reinterpret_cast<const BFloat16*>(source);
  return compare_elements(results, count, [=, this](int64_t i) {
    float sum = 0;
    for (int64_t pass = 0; pass < passes_; ++pass) sum += to_float(gradients[i]);
    return sum;
  });
}

}  // namespace stagecoach
