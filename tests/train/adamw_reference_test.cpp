// Three steps on host and device against those of torch.optim.AdamW, on the gradients of
// tests/reference/make_adamw_fixture.py.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>

#include "backends/register_backends.h"
#include "core/json.h"
#include "model/safetensors.h"
#include "tests/fake_gpu/fake_gpu_machine.h"
#include "train/device_updater.h"
#include "train/optimizer.h"

namespace stagecoach {
namespace {

constexpr int64_t kSteps = 3;

/// As far as an element may be from torch's, relative to it, or to the tensor's largest times
/// kFloor where it is smaller: what comes out near zero is the difference of a parameter and a step
/// that were not, and carries their rounding, which is not relative to it.
constexpr double kTolerance = 1e-6;
constexpr double kFloor = 1.0 / 256;

class Fixture {
 public:
  Fixture()
      : file_(SafetensorsFile::open(std::string(STAGECOACH_SOURCE_DIR) +
                                    "/tests/reference/adamw/expected.safetensors")
                  .value()),
        settings(Json::parse(file_.header().metadata.at("settings")).value()) {}

  std::vector<float> read(const std::string& name, int64_t row = 0) const {
    const SafetensorInfo& tensor = *file_.find(name);
    std::vector<float> values(static_cast<size_t>(tensor.shape.back()));
    auto first = row * static_cast<int64_t>(values.size());
    EXPECT_TRUE(file_.read_f32(tensor, first, values).is_ok());
    return values;
  }

 private:
  SafetensorsFile file_;

 public:
  Json settings;
};

UpdateNumbers numbers_of(const Json& setting, int64_t step) {
  auto number = [&](const char* key) { return static_cast<float>(setting.find(key)->as_number()); };
  const std::vector<Json>& betas = setting.find("betas")->items();
  const std::vector<Json>& rates = setting.find("lr")->items();
  UpdateNumbers numbers;
  numbers.learning_rate = static_cast<float>(rates[static_cast<size_t>(step - 1)].as_number());
  numbers.beta1 = static_cast<float>(betas[0].as_number());
  numbers.beta2 = static_cast<float>(betas[1].as_number());
  numbers.epsilon = number("eps");
  numbers.weight_decay = number("weight_decay");
  numbers.step = step;
  return numbers;
}

double largest_of(const std::vector<float>& values) {
  double largest = 0;
  for (float value : values) largest = std::max(largest, std::abs(static_cast<double>(value)));
  return largest;
}

/// The largest error of an element, relative as kTolerance says.
double error_of(const std::vector<float>& found, const std::vector<float>& expected) {
  double floor = kFloor * largest_of(expected), error = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    double wanted = expected[i], difference = std::abs(wanted - static_cast<double>(found[i]));
    EXPECT_TRUE(std::isfinite(found[i])) << i;
    error = std::max(error, difference / std::max(std::abs(wanted), floor));
  }
  return error;
}

/// Masters are fp32 that devices read as they are (F32), with a copy beside them (F16), and split
/// in halves (BF16).
class AdamWReference : public testing::TestWithParam<DType> {
 protected:
  /// Takes the steps of one setting on `device`'s host state; `update` makes each.
  template <typename Update>
  void follow(Device& device, const std::string& name, const Json& setting, Update&& update) {
    std::vector<float> parameters = fixture_.read("parameters");
    auto count = static_cast<int64_t>(parameters.size());
    // Of two rounds: fp32 sums of gradients, whatever devices compute in.
    HostStateOptions options{GetParam(), 2, 2};
    auto state = HostState::create(device, {{"block", count, 1}}, options).value();
    ASSERT_TRUE(state->write_parameters(0, 0, parameters).is_ok());
    double worst = 0;
    for (int64_t step = 1; step <= kSteps; ++step) {
      std::vector<float> gradients = fixture_.read("gradients", step - 1);
      BufferView sums = state->buffers(0).gradients.at(0);
      ASSERT_EQ(state->memory(0).gradient_dtype, DType::kF32);
      std::memcpy(sums.host_data(), gradients.data(), gradients.size() * sizeof(float));
      Result<int64_t> refused = update(*state, count, numbers_of(setting, step));
      ASSERT_TRUE(refused.is_ok()) << refused.status().to_string();
      ASSERT_EQ(*refused, 0);
      state->publish(0);
      state->read_parameters(0, 0, parameters);
      std::vector<float> expected = fixture_.read(name + ".after", step - 1);
      double error = error_of(parameters, expected);
      EXPECT_LE(error, kTolerance) << name << ", step " << step;
      worst = std::max(worst, error);
    }
    RecordProperty(name, std::to_string(worst * 1e9) + "e-9");
  }

  Fixture fixture_;
  std::unique_ptr<TaskPool> pool_ = TaskPool::create(2);
};

TEST_P(AdamWReference, ThreeStepsOnTheHostAreThoseOfTorch) {
  auto devices = built_in_backends().open_devices("cpu:1").value();
  ASSERT_GE(fixture_.settings.members().size(), 5u);
  for (const auto& [name, setting] : fixture_.settings.members()) {
    follow(*devices[0], name, setting,
           [&](HostState& state, int64_t count, const UpdateNumbers& numbers) -> Result<int64_t> {
             return update_parameters(state, 0, 0, count, numbers, *pool_);
           });
  }
}

TEST_P(AdamWReference, ThreeStepsOnDevicesAreThoseOfTorch) {
  FakeGpuMachine machine;
  auto cpu = built_in_backends().open_devices("cpu:1").value();
  auto gpu = machine.open("0").value();
  for (Device* device : {cpu[0].get(), gpu[0].get()}) {
    auto updater = DeviceUpdater::create(*device, 128).value();
    for (const auto& [name, setting] : fixture_.settings.members()) {
      follow(*device, name, setting,
             [&](HostState& state, int64_t count, const UpdateNumbers& numbers) {
               return updater->update(state, 0, 0, count, numbers);
             });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Masters, AdamWReference,
                         testing::Values(DType::kF32, DType::kF16, DType::kBF16),
                         [](const auto& test) { return std::string(dtype_name(test.param)); });

}  // namespace
}  // namespace stagecoach
