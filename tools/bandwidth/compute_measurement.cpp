#include "tools/bandwidth/compute_measurement.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/dtype.h"
#include "core/random.h"
#include "tools/bandwidth/await.h"
#include "tools/bandwidth/units.h"

namespace stagecoach {

namespace {

constexpr double kFlopPerTera = 1e12;

MeasurementInfo complete_compute_info(MeasurementInfo info) {
  info.quantities = {{"rate", "TFLOP/s"}};
  info.payload_bytes = 0;
  info.directions = 0;
  return info;
}

/// Numbers from -1 to 1: the power that a product takes, and so its speed, depends on them.
void fill_with_random_bfloat16(std::byte* data, int64_t count, uint64_t seed) {
  RandomKey key;
  key.seed = seed;
  for (int64_t index = 0; index < count; ++index) {
    uint32_t word = random_word(key, static_cast<uint64_t>(index));
    BFloat16 value = to_bfloat16(static_cast<float>(static_cast<int32_t>(word)) / 2147483648.0f);
    std::memcpy(data + index * static_cast<int64_t>(sizeof(value)), &value, sizeof(value));
  }
}

}  // namespace

ComputeMeasurement::ComputeMeasurement(MeasurementInfo info, Device& device, int64_t side)
    : Measurement(complete_compute_info(std::move(info))), device_(device), side_(side) {}

Result<TensorView> ComputeMeasurement::make_matrix() {
  TensorView matrix{{}, DType::kBF16, Shape{side_, side_}};
  ByteCount size = matrix.size_bytes();
  STAGECOACH_ASSIGN_OR_RETURN(BufferHandle memory, require_buffer(device_.allocate(size, "compute"),
                                                                  device_, size, "compute"));
  STAGECOACH_ASSIGN_OR_RETURN(
      BufferHandle values,
      require_buffer(device_.allocate_pinned(size, "compute"), device_, size, "compute"));
  fill_with_random_bfloat16(values->host_data(), side_ * side_, buffers_.size() + 1);
  STAGECOACH_RETURN_IF_FAILED(stream_->copy({memory->view(), values->view(), "operand"}));
  STAGECOACH_RETURN_IF_ERROR(stream_->synchronize());
  matrix.memory = memory->view();
  buffers_.push_back(std::move(memory));
  return matrix;
}

Status ComputeMeasurement::prepare() {
  if (stream_) return Status::ok();
  STAGECOACH_ASSIGN_OR_RETURN(stream_, device_.create_stream({"compute"}));
  STAGECOACH_ASSIGN_OR_RETURN(start_, device_.create_event({true}));
  STAGECOACH_ASSIGN_OR_RETURN(end_, device_.create_event({true}));
  for (TensorView* matrix : {&left_, &right_, &product_}) {
    STAGECOACH_ASSIGN_OR_RETURN(*matrix, make_matrix());
  }
  return Status::ok();
}

double ComputeMeasurement::flop() const {
  auto side = static_cast<double>(side_);
  return 2 * side * side * side;
}

Result<Timepoint> ComputeMeasurement::issue(Stream& stream) {
  Ops::Matmul request;
  request.out = product_;
  request.a = left_;
  request.b = right_;
  request.label = "compute";
  return device_.ops().matmul(stream, request);
}

Result<Batch> ComputeMeasurement::run(int64_t repeats, int64_t deadline_ns) {
  int64_t overrun_before_ns = device_.counters().overrun_ns;
  STAGECOACH_RETURN_IF_FAILED(stream_->record(*start_));
  for (int64_t repeat = 0; repeat < repeats; ++repeat) {
    STAGECOACH_RETURN_IF_FAILED(issue(*stream_));
  }
  STAGECOACH_RETURN_IF_FAILED(stream_->record(*end_));
  STAGECOACH_RETURN_IF_ERROR(await_timepoint(device_, end_->timepoint(), deadline_ns));
  STAGECOACH_ASSIGN_OR_RETURN(int64_t start_ns, start_->timestamp_ns());
  STAGECOACH_ASSIGN_OR_RETURN(int64_t end_ns, end_->timestamp_ns());
  Batch batch;
  batch.duration_ns = std::max<int64_t>(1, end_ns - start_ns);
  double flop_per_ns =
      flop() * static_cast<double>(repeats) / static_cast<double>(batch.duration_ns);
  batch.samples = {{flop_per_ns * kNsPerSecond / kFlopPerTera}};
  batch.flag_overrun(device_.counters().overrun_ns - overrun_before_ns);
  return batch;
}

}  // namespace stagecoach
