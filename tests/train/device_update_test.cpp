// The host's update and norm against the operations of the CPU backend, which are the oracle of
// every device: what one of them computes, the other could have.
#include <bit>
#include <cstring>
#include <gtest/gtest.h>
#include <hwy/targets.h>
#include <random>

#include "backends/cpu/cpu_ops.h"
#include "backends/register_backends.h"
#include "hal/ops.h"
#include "memory/split_master.h"
#include "train/update_kernel.h"

namespace stagecoach {
namespace {

struct DeviceUpdate : ::testing::Test {
  ~DeviceUpdate() override { hwy::SetSupportedTargetsForTest(0); }

  /// A tensor in device memory that holds `values`.
  template <typename Storage>
  TensorView tensor(const std::vector<Storage>& values, DType dtype) {
    TensorView view{{}, dtype, {static_cast<int64_t>(values.size())}};
    Allocation allocation = devices[0]->allocate(view.size_bytes(), "test");
    STAGECOACH_CHECK(allocation.outcome == AllocationOutcome::kOk);
    view.memory = allocation.buffer->view();
    buffers.push_back(std::move(allocation.buffer));
    std::memcpy(data<Storage>(view), values.data(), values.size() * sizeof(Storage));
    return view;
  }
  template <typename Storage>
  static Storage* data(const TensorView& view) {
    return reinterpret_cast<Storage*>(view.memory.buffer->device_address());
  }
  void run(const OpCall& call) {
    ASSERT_TRUE(validate_op(call, *devices[0]).is_ok());
    ASSERT_TRUE(run_cpu_op(call, *pool).is_ok());
  }

  BackendRegistry registry = built_in_backends();
  std::vector<std::unique_ptr<Device>> devices = registry.open_devices("cpu:1").value();
  std::vector<BufferHandle> buffers;
  std::unique_ptr<TaskPool> pool = TaskPool::create(2);
};

/// Random finite bit patterns: every exponent, denormals and zeros among them.
std::vector<float> random_patterns(int64_t count, uint32_t seed) {
  std::mt19937 engine(seed);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) {
    uint32_t bits = static_cast<uint32_t>(engine());
    if ((bits & 0x7f800000u) == 0x7f800000u) bits &= 0x80ffffffu;
    value = std::bit_cast<float>(bits);
  }
  return values;
}

std::vector<float> normals(int64_t count, uint32_t seed, float scale) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(engine);
  return values;
}

template <typename Storage>
std::vector<Storage> rounded(const std::vector<float>& values) {
  std::vector<Storage> result;
  for (float value : values) result.push_back(from_float<Storage>(value));
  return result;
}

TEST_F(DeviceUpdate, AdamWGivesTheBitsOfTheDevicesOperation) {
  constexpr int64_t kCount = 70'001;
  for (bool wild : {false, true}) {
    std::vector<float> start = wild ? random_patterns(kCount, 1) : normals(kCount, 1, 0.5f);
    std::vector<BFloat16> high(kCount);
    std::vector<int16_t> remainder(kCount);
    split_floats(start.data(), high.data(), remainder.data(), kCount);
    std::vector<float> zeros(kCount), first = zeros, second = zeros;
    TensorView parameters = tensor(start, DType::kF32);
    TensorView device_first = tensor(zeros, DType::kF32);
    TensorView device_second = tensor(zeros, DType::kF32);
    int64_t refused = 0;
    for (int64_t step = 1; step <= 3; ++step) {
      uint32_t seed = 10 + static_cast<uint32_t>(step);
      auto gradients =
          rounded<BFloat16>(wild ? random_patterns(kCount, seed) : normals(kCount, seed, 0.02f));
      // Random patterns reach what fp32 holds; squares of those below its root stay finite.
      for (BFloat16& gradient : gradients) {
        if (std::abs(to_float(gradient)) > 1e18f) gradient.bits = 0x3c00;
      }
      OpCall call;
      call.kind = OpKind::kAdamW;
      call.outputs = {parameters, device_first, device_second};
      call.inputs[0] = tensor(gradients, DType::kBF16);
      call.adamw = {1e-2f, 0.9f, 0.95f, 0.1f, step};
      call.epsilon = 1e-8f;
      call.scale = 0.37f;
      run(call);
      UpdatePiece piece;
      const void* source = gradients.data();
      piece.element_count = kCount;
      piece.gradients = {DType::kBF16, {&source, 1}};
      piece.high = high.data();
      piece.new_high = high.data();
      piece.remainder = remainder.data();
      piece.first_moment.values = first.data();
      piece.second_moment.values = second.data();
      UpdateNumbers numbers{UpdateRule::kAdamW, 1e-2f, 0.9f, 0.95f, 1e-8f, 0.1f, 0.37f, step};
      refused += update_piece(piece, numbers, *pool);
    }
    EXPECT_EQ(refused, 0);
    std::vector<float> joined(kCount);
    join_floats(high.data(), remainder.data(), joined.data(), kCount);
    auto differ = [&](const std::vector<float>& host, const TensorView& device) {
      return std::memcmp(host.data(), data<float>(device), kCount * sizeof(float)) != 0;
    };
    EXPECT_FALSE(differ(joined, parameters)) << wild;
    EXPECT_FALSE(differ(first, device_first)) << wild;
    EXPECT_FALSE(differ(second, device_second)) << wild;
  }
}

TEST_F(DeviceUpdate, NormIsTheDevicesOnEverySimdTargetAndThread) {
  std::unique_ptr<TaskPool> one = TaskPool::create(1);
  for (int64_t count : {1, 255, 64 * 1024 + 1, 700'001, 1'200'000}) {
    std::vector<float> values = normals(count, 5, 2.0f);
    std::vector<float> wild = random_patterns(count, 6);
    auto halves = rounded<Float16>(values);
    auto brains = rounded<BFloat16>(values);
    auto check = [&](const void* source, const TensorView& in) {
      OpCall call;
      call.kind = OpKind::kSumOfSquares;
      call.outputs[0] = tensor(std::vector<double>{-1.0}, DType::kF64);
      call.inputs[0] = in;
      run(call);
      double expected = *data<double>(call.outputs[0]);
      for (int64_t target : simd_targets()) {
        hwy::SetSupportedTargetsForTest(target);
        for (TaskPool* threads : {one.get(), pool.get()}) {
          ASSERT_EQ(sum_of_squares({in.dtype, {&source, 1}}, count, *threads), expected)
              << hwy::TargetName(target) << " " << count;
        }
      }
      hwy::SetSupportedTargetsForTest(0);
    };
    check(values.data(), tensor(values, DType::kF32));
    check(wild.data(), tensor(wild, DType::kF32));
    check(halves.data(), tensor(halves, DType::kF16));
    check(brains.data(), tensor(brains, DType::kBF16));
  }
}

// The order that hal/square_sum.h states, written down once more.
TEST_F(DeviceUpdate, NormIsAddedUpInLanesOfPieces) {
  for (int64_t count : {1, 31, 33, 65'536, 65'537, 200'003}) {
    std::vector<float> values = normals(count, 7, 3.0f);
    double total = 0;
    for (int64_t begin = 0; begin < count; begin += 65'536) {
      double lanes[32] = {};
      for (int64_t i = begin; i < std::min<int64_t>(count, begin + 65'536); ++i) {
        lanes[i % 32] += double{values[i]} * double{values[i]};
      }
      for (int half : {16, 8, 4, 2, 1}) {
        for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
      }
      total += lanes[0];
    }
    const void* source = values.data();
    EXPECT_EQ(sum_of_squares({DType::kF32, {&source, 1}}, count, *pool), total) << count;
  }
}

TEST_F(DeviceUpdate, NormOfSeveralSourcesIsThatOfTheirSum) {
  constexpr int64_t kCount = 200'000;
  std::vector<float> sum(kCount);
  std::vector<std::vector<BFloat16>> parts;
  std::vector<const void*> sources;
  for (uint32_t k = 0; k < 3; ++k)
    parts.push_back(rounded<BFloat16>(normals(kCount, 20 + k, 1.0f)));
  for (const auto& part : parts) sources.push_back(part.data());
  for (int64_t i = 0; i < kCount; ++i) {
    sum[i] = to_float(parts[0][i]) + to_float(parts[1][i]);
    sum[i] += to_float(parts[2][i]);
  }
  const void* whole = sum.data();
  EXPECT_EQ(sum_of_squares({DType::kBF16, sources}, kCount, *pool),
            sum_of_squares({DType::kF32, {&whole, 1}}, kCount, *pool));
}

TEST_F(DeviceUpdate, NormIsFiniteExactlyWhenAllGradientsAre) {
  std::vector<float> values(100'000, std::numeric_limits<float>::max());
  const void* source = values.data();
  auto norm = [&] { return sum_of_squares({DType::kF32, {&source, 1}}, 100'000, *pool); };
  EXPECT_TRUE(std::isfinite(norm()));
  for (float bad : {INFINITY, -INFINITY, NAN}) {
    values[99'999] = bad;
    EXPECT_FALSE(std::isfinite(norm()));
  }
}

}  // namespace
}  // namespace stagecoach
