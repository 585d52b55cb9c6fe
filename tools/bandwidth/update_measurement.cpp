#include "tools/bandwidth/update_measurement.h"

#include <algorithm>
#include <utility>

#include "core/clock.h"
#include "core/dtype.h"
#include "tools/bandwidth/units.h"
#include "train/update_kernel.h"

namespace stagecoach {

namespace {

MeasurementInfo complete_update_info(MeasurementInfo info, int64_t element_count) {
  info.quantities = {{"parameters", "Gparam/s"}, {"dram", "GB/s"}};
  info.payload_bytes = element_count * kBytesOfAnUpdate;
  info.directions = 0;
  return info;
}

template <typename T>
Status fill(PageableMemory& memory, int64_t count, T value, NodePlacement* placement) {
  auto size = count * static_cast<int64_t>(sizeof(T));
  STAGECOACH_ASSIGN_OR_RETURN(memory, PageableMemory::create(size));
  if (placement != nullptr) placement->place(memory.data(), size);
  std::fill_n(reinterpret_cast<T*>(memory.data()), count, value);
  return Status::ok();
}

template <typename T>
T* values(const PageableMemory& memory) {
  return reinterpret_cast<T*>(memory.data());
}

}  // namespace

Status UpdateArrays::open() {
  if (second_moment.data() != nullptr) return Status::ok();
  NodePlacement* node = placement.get();
  STAGECOACH_RETURN_IF_ERROR(fill(gradients, element_count, to_bfloat16(1e-3f), node));
  STAGECOACH_RETURN_IF_ERROR(fill(high, element_count, to_bfloat16(0.5f), node));
  STAGECOACH_RETURN_IF_ERROR(fill(remainder, element_count, int16_t{0}, node));
  STAGECOACH_RETURN_IF_ERROR(fill(first_moment, element_count, 0.0f, node));
  return fill(second_moment, element_count, 0.0f, node);
}

UpdateMeasurement::UpdateMeasurement(MeasurementInfo info, int threads,
                                     std::shared_ptr<UpdateArrays> arrays, ThreadPlace place)
    : Measurement(complete_update_info(std::move(info), arrays->element_count)),
      threads_(threads),
      arrays_(std::move(arrays)),
      place_(std::move(place)) {}

Status UpdateMeasurement::prepare() {
  if (!pool_) pool_ = create_pool_at(place_, threads_);
  STAGECOACH_RETURN_IF_ERROR(arrays_->open());
  std::string doubt = doubt_of(arrays_->placement.get(), place_);
  is_unverified_ = !doubt.empty();
  if (is_unverified_) set_param("placement", doubt);
  return Status::ok();
}

Result<Batch> UpdateMeasurement::run(int64_t repeats, int64_t /*deadline_ns*/) {
  const void* gradients = arrays_->gradients.data();
  UpdatePiece piece;
  piece.element_count = arrays_->element_count;
  piece.gradients = {DType::kBF16, {&gradients, 1}};
  piece.high = piece.new_high = values<BFloat16>(arrays_->high);
  piece.remainder = values<int16_t>(arrays_->remainder);
  piece.first_moment = {arrays_->first_moment.data(), nullptr};
  piece.second_moment = {arrays_->second_moment.data(), nullptr};
  UpdateNumbers numbers;
  numbers.learning_rate = 1e-6f;
  int64_t refused = 0;
  Batch batch;
  static_cast<void>(run_at(place_, [&] {
    int64_t start_ns = RealClock::instance().now_ns();
    for (int64_t repeat = 0; repeat < repeats; ++repeat) {
      numbers.step = ++step_;
      refused += update_piece(piece, numbers, *pool_);
    }
    batch.duration_ns = std::max<int64_t>(1, RealClock::instance().now_ns() - start_ns);
  }));
  if (is_unverified_) batch.flags.push_back(SampleFlag::kUnverified);
  if (refused > 0) return internal_error("updates of the measurement are not finite");
  double rate = static_cast<double>(repeats * arrays_->element_count) /
                static_cast<double>(batch.duration_ns) * kNsPerSecond;
  batch.samples = {{rate / 1e9}, {rate * kBytesOfAnUpdate / kBytesPerGb}};
  return batch;
}

}  // namespace stagecoach
