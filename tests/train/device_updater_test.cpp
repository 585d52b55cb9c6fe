#include "train/device_updater.h"

#include <cmath>
#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>

#include "backends/register_backends.h"
#include "core/random.h"
#include "tests/fake_gpu/fake_gpu_machine.h"
#include "train/optimizer.h"

namespace stagecoach {
namespace {

constexpr int64_t kCount = 70'001;  // a tail, and more pieces than slots

std::vector<float> normals(uint32_t site, double scale) {
  std::vector<float> values(kCount);
  for (int64_t i = 0; i < kCount; ++i) {
    values[i] =
        static_cast<float>(scale * random_normal({9, 0, 0, 0, site}, static_cast<uint64_t>(i)));
  }
  return values;
}

void land(const std::vector<float>& values, const HostState& state) {
  void* target = state.gradient_slot(0, 0, 0).host_data();
  for (int64_t i = 0; i < kCount; ++i) {
    switch (state.gradient_dtype()) {
      case DType::kBF16:
        static_cast<BFloat16*>(target)[i] = to_bfloat16(values[i]);
        break;
      case DType::kF16:
        static_cast<Float16*>(target)[i] = to_float16(values[i]);
        break;
      default:
        static_cast<float*>(target)[i] = values[i];
    }
  }
}

std::string bytes_of(const BufferView& view) {
  return {reinterpret_cast<const char*>(view.host_data()), static_cast<size_t>(view.size)};
}

/// Everything of a block, bit for bit.
std::vector<std::string> contents(const HostState& state) {
  BlockBuffers block = state.buffers(0);
  std::vector<std::string> all;
  for (const BufferView& view : {block.compute_copy, block.master, block.remainder,
                                 block.first_moment, block.second_moment}) {
    all.push_back(view.is_none() ? "" : bytes_of(view));
  }
  return all;
}

/// On the CPU backend and on the GPU backends' template, whose kernels are held to the CPU's bits
/// by EmulatedOpsTest.
class DeviceUpdaterTest : public testing::TestWithParam<const char*> {
 protected:
  DeviceUpdaterTest() {
    if (std::string(GetParam()) == "cpu") {
      devices_ = built_in_backends().open_devices("cpu:1").value();
    } else {
      machine_ = std::make_unique<FakeGpuMachine>();
      devices_ = machine_->open("0").value();
    }
  }
  Device& device() { return *devices_[0]; }
  std::unique_ptr<HostState> make(const HostStateOptions& options, int sites = 1) {
    auto state = HostState::create(device(), {{"block", kCount, sites}}, options).value();
    EXPECT_TRUE(state->write_parameters(0, 0, normals(1, 0.5)).is_ok());
    return state;
  }
  std::unique_ptr<FakeGpuMachine> machine_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::unique_ptr<TaskPool> pool_ = TaskPool::create(2);
  UpdateNumbers numbers_{UpdateRule::kAdamW, 1e-2f, 0.9f, 0.95f, 1e-8f, 0.1f, 0.37f, 1};
};

TEST_P(DeviceUpdaterTest, GivesTheBitsOfTheHost) {
  for (int64_t piece : {4'096, 33'000, 100'000}) {
    auto updater = DeviceUpdater::create(device(), piece).value();
    for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      for (int rounds : {1, 2}) {
        SCOPED_TRACE(std::string(dtype_name(dtype)) + ", pieces of " + std::to_string(piece));
        auto host = make({dtype, rounds, rounds}), shared = make({dtype, rounds, rounds});
        for (numbers_.step = 1; numbers_.step <= 3; ++numbers_.step) {
          for (HostState* state : {host.get(), shared.get()}) {
            land(normals(static_cast<uint32_t>(10 + numbers_.step), 0.02), *state);
            state->accumulate_round(0, 0, *pool_);
          }
          // In two ranges, as parameters of different groups are, one on each side.
          constexpr int64_t kCut = 20'032;
          EXPECT_EQ(update_parameters(*host, 0, 0, kCount, numbers_, *pool_), 0);
          EXPECT_EQ(update_parameters(*shared, 0, 0, kCut, numbers_, *pool_), 0);
          Result<int64_t> refused = updater->update(*shared, 0, kCut, kCount - kCut, numbers_);
          ASSERT_TRUE(refused.is_ok()) << refused.status().to_string();
          EXPECT_EQ(*refused, 0);
          ASSERT_TRUE(contents(*host) == contents(*shared)) << "step " << numbers_.step;
          host->publish(0);
          shared->publish(0);
        }
      }
    }
  }
}

TEST_P(DeviceUpdaterTest, APieceThatWouldNotBeFiniteStaysAsItWas) {
  auto updater = DeviceUpdater::create(device(), 16'384).value();
  auto state = make({DType::kBF16, 1, 1});
  std::vector<float> gradients = normals(2, 0.1);
  gradients[40'000] = 1e30f;  // finite, but its square is not in fp32
  land(gradients, *state);
  std::vector<std::string> before = contents(*state);
  Result<int64_t> refused = updater->update(*state, 0, 0, kCount, numbers_);
  ASSERT_TRUE(refused.is_ok()) << refused.status().to_string();
  EXPECT_GT(*refused, 0);
  std::vector<std::string> after = contents(*state);
  constexpr size_t kBegin = 2 * 16'384 * 2;  // the third piece, of 16-bit elements
  EXPECT_NE(after[0].substr(0, kBegin), before[0].substr(0, kBegin));
  EXPECT_EQ(after[0].substr(kBegin), before[0].substr(kBegin));
  EXPECT_EQ(after[3].substr(2 * kBegin), before[3].substr(2 * kBegin));
}

TEST_P(DeviceUpdaterTest, WhatItDoesNotHaveIsRefusedWithNothingTouched) {
  auto updater = DeviceUpdater::create(device(), 4'096).value();
  auto refusal = [&](HostState& state) {
    std::vector<std::string> before = contents(state);
    Result<int64_t> result = updater->update(state, 0, 0, kCount, numbers_);
    EXPECT_EQ(result.status().code(), StatusCode::kUnimplemented);
    EXPECT_TRUE(contents(state) == before);
    return result.status().message();
  };
  EXPECT_THAT(refusal(*make({DType::kBF16, 1, 1}, 2)), testing::HasSubstr("several places"));
  HostStateOptions small{DType::kBF16, 1, 1, {2, MomentFormat::kBFloat16}};
  EXPECT_THAT(refusal(*make(small)), testing::HasSubstr("not fp32"));
  numbers_.rule = UpdateRule::kLion;
  EXPECT_THAT(refusal(*make({DType::kBF16, 1, 1})), testing::HasSubstr("AdamW"));
}

TEST_P(DeviceUpdaterTest, TakesTheMemoryItSays) {
  ByteCount before = device().memory_usage().value().used_bytes;
  auto updater = DeviceUpdater::create(device(), 10'000).value();
  // The rest is scratch memory, which operations take once they run.
  constexpr ByteCount kScratchBytes = 256;
  EXPECT_EQ(device().memory_usage().value().used_bytes - before + kScratchBytes,
            DeviceUpdater::bytes(10'000));
}

INSTANTIATE_TEST_SUITE_P(Devices, DeviceUpdaterTest, testing::Values("cpu", "fake_gpu"));

}  // namespace
}  // namespace stagecoach
