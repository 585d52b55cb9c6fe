// How near do products over experts come to one product of as many FLOP? README.md says how to read
// the rows.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "backends/cpu/cpu_ops.h"
#include "core/clock.h"
#include "hal/device.h"
#include "hal/ops.h"

namespace stagecoach {
namespace {

constexpr int64_t kExperts = 16;
constexpr int64_t kIn = 512;
constexpr int64_t kOut = 768;
constexpr int kTurns = 15;

/// A device and tensors on it.
class Rig {
 public:
  Rig() : pool_(TaskPool::create(usable_thread_count())) {
    DeviceSpec spec;
    spec.backend = "cpu";
    spec.which = "1";
    spec.text = "cpu:1";
    auto devices = make_cpu_backend()->open(spec);
    STAGECOACH_CHECK(devices.is_ok());
    device_ = std::move(devices->front());
  }

  TensorView floats(DType dtype, const Shape& shape) {
    TensorView view = tensor(dtype, shape);
    std::normal_distribution<float> normal(0.0f, 0.5f);
    std::byte* data = bytes(view);
    for (int64_t i = 0; i < view.element_count(); ++i) {
      float value = normal(engine_);
      if (dtype == DType::kF32) reinterpret_cast<float*>(data)[i] = value;
      if (dtype == DType::kBF16) reinterpret_cast<BFloat16*>(data)[i] = to_bfloat16(value);
    }
    return view;
  }
  TensorView integers(const std::vector<int32_t>& values) {
    TensorView view = tensor(DType::kI32, {static_cast<int64_t>(values.size())});
    std::memcpy(bytes(view), values.data(), values.size() * sizeof(int32_t));
    return view;
  }

  double time_ns(const OpCall& call) {
    int64_t start = RealClock::instance().now_ns();
    STAGECOACH_CHECK(run_cpu_op(call, *pool_).is_ok());
    return static_cast<double>(RealClock::instance().now_ns() - start);
  }

 private:
  TensorView tensor(DType dtype, const Shape& shape) {
    TensorView view{{}, dtype, shape};
    Allocation allocation = device_->allocate(view.size_bytes(), "bench");
    STAGECOACH_CHECK(allocation.outcome == AllocationOutcome::kOk);
    view.memory = allocation.buffer->view();
    buffers_.push_back(std::move(allocation.buffer));
    return view;
  }
  static std::byte* bytes(const TensorView& view) {
    return reinterpret_cast<std::byte*>(view.memory.buffer->device_address());
  }

  std::mt19937 engine_{1};
  std::unique_ptr<TaskPool> pool_;
  std::unique_ptr<Device> device_;
  std::vector<BufferHandle> buffers_;
};

OpCall make_call(OpKind kind, const TensorView& out, std::initializer_list<TensorView> inputs) {
  OpCall call;
  call.kind = kind;
  call.outputs[0] = out;
  std::copy(inputs.begin(), inputs.end(), call.inputs.begin());
  return call;
}

/// Where each expert's rows begin when `rows` choose by chance.
std::vector<int32_t> random_offsets(int64_t rows) {
  std::mt19937 engine(2);
  std::vector<int32_t> offsets(kExperts + 1, 0);
  for (int64_t row = 0; row < rows; ++row) ++offsets[engine() % kExperts + 1];
  for (size_t e = 1; e < offsets.size(); ++e) offsets[e] += offsets[e - 1];
  return offsets;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + kTurns / 2, values.end());
  return values[kTurns / 2];
}

/// Both by turns, so that what else the machine does falls on both.
void compare(Rig& rig, const char* name, int64_t rows, DType dtype, const OpCall& grouped,
             const OpCall& dense) {
  rig.time_ns(grouped);
  rig.time_ns(dense);
  std::vector<double> grouped_ns, ratios;
  for (int turn = 0; turn < kTurns; ++turn) {
    grouped_ns.push_back(rig.time_ns(grouped));
    ratios.push_back(rig.time_ns(dense) / grouped_ns.back());
  }
  std::printf("%-16s %6lld rows of %lld experts, %s: %8.2f ms, %.2f of the dense rate\n", name,
              static_cast<long long>(rows), static_cast<long long>(kExperts),
              std::string(dtype_name(dtype)).c_str(), median(grouped_ns) / 1e6, median(ratios));
}

void compare_all(int64_t rows, DType dtype) {
  Rig rig;
  TensorView in = rig.floats(dtype, {rows, kIn}), out = rig.floats(dtype, {rows, kOut});
  TensorView matrices = rig.floats(dtype, {kExperts, kOut, kIn});
  TensorView matrix = rig.floats(dtype, {kOut, kIn});
  TensorView offsets = rig.integers(random_offsets(rows));
  OpCall grouped = make_call(OpKind::kGroupedMatmul, out, {in, matrices, offsets});
  OpCall dense = make_call(OpKind::kMatmul, out, {in, matrix});
  grouped.transpose_b = dense.transpose_b = true;
  compare(rig, "forward", rows, dtype, grouped, dense);
  grouped = make_call(OpKind::kGroupedMatmul, in, {out, matrices, offsets});
  dense = make_call(OpKind::kMatmul, in, {out, matrix});
  compare(rig, "input gradient", rows, dtype, grouped, dense);
  TensorView grads = rig.floats(DType::kF32, {kExperts, kOut, kIn});
  grouped = make_call(OpKind::kGroupedMatmulWeight, grads, {out, in, offsets});
  dense = make_call(OpKind::kMatmul, rig.floats(DType::kF32, {kOut, kIn}), {out, in});
  dense.transpose_a = dense.accumulate = true;
  compare(rig, "weight gradient", rows, dtype, grouped, dense);
}

}  // namespace
}  // namespace stagecoach

int main() {
  for (int64_t rows : {512, 4096}) {
    for (stagecoach::DType dtype : {stagecoach::DType::kF32, stagecoach::DType::kBF16}) {
      stagecoach::compare_all(rows, dtype);
    }
  }
  return 0;
}
