#include "hal/backend_registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/register_backends.h"

namespace stagecoach {
namespace {

using testing::HasSubstr;

std::vector<std::string> ids(const std::vector<std::unique_ptr<Device>>& devices) {
  std::vector<std::string> result;
  for (const auto& device : devices) result.push_back(device->id());
  return result;
}

/// A backend whose hardware is not there.
class AbsentBackend final : public Backend {
 public:
  std::string_view name() const override { return "absent"; }
  Status availability() override { return unavailable("no driver; install it"); }
  std::vector<DeviceInfo> list_devices() override { return {}; }
  Result<std::vector<std::unique_ptr<Device>>> open(const DeviceSpec&) override {
    ++opened;
    return internal_error("opened though unavailable");
  }
  int opened = 0;
};

TEST(BackendRegistry, OpensInOrderAndCountsOnPerBackend) {
  auto devices = built_in_backends().open_devices("cpu:2,cpu:1[memory=1M]");
  ASSERT_TRUE(devices.is_ok()) << devices.status().to_string();
  EXPECT_EQ(ids(devices.value()), (std::vector<std::string>{"cpu:0", "cpu:1", "cpu:2"}));
  EXPECT_EQ(devices.value()[2]->info().memory_bytes, kMiB);
}

TEST(BackendRegistry, DevicesOutliveTheRegistry) {
  std::vector<std::unique_ptr<Device>> devices;
  {
    BackendRegistry registry = built_in_backends();
    devices = std::move(registry.open_devices("cpu:1")).value();
  }
  EXPECT_EQ(devices[0]->allocate(64, "later").outcome, AllocationOutcome::kOk);
}

TEST(BackendRegistry, UnknownNamesGetTheNearest) {
  auto devices = built_in_backends().open_devices("cpi:4");
  ASSERT_FALSE(devices.is_ok());
  EXPECT_EQ(devices.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(devices.status().message(), HasSubstr("did you mean 'cpu:4'"));
  devices = built_in_backends().open_devices("cud:0");
  EXPECT_THAT(devices.status().message(), HasSubstr("did you mean 'cuda:0'"));
}

TEST(BackendRegistry, BackendsNotBuiltInAreUnavailableWithTheFlag) {
  for (const auto& [text, flag] : std::vector<std::pair<const char*, const char*>>{
           {"cuda:0", "-DSTAGECOACH_CUDA=ON"}, {"hip:all", "-DSTAGECOACH_HIP=ON"}}) {
    BackendRegistry empty;
    auto devices = empty.open_devices(text);
    ASSERT_FALSE(devices.is_ok());
    EXPECT_EQ(devices.status().code(), StatusCode::kUnavailable);
    EXPECT_THAT(devices.status().message(), HasSubstr(flag));
  }
}

TEST(BackendRegistry, SimulatedDevicesDoNotRun) {
  auto devices = built_in_backends().open_devices("sim:2xrtx4090");
  ASSERT_FALSE(devices.is_ok());
  EXPECT_EQ(devices.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(devices.status().message(), HasSubstr("`simulate` and `plan`"));
}

TEST(BackendRegistry, NamesAreCheckedBeforeAnythingOpens) {
  BackendRegistry registry;
  auto owned = std::make_unique<AbsentBackend>();
  AbsentBackend* absent = owned.get();
  registry.add(std::move(owned));
  EXPECT_EQ(registry.open_devices("absent:1,nothing:1").status().code(),
            StatusCode::kInvalidArgument);
  auto devices = registry.open_devices("absent:1");
  EXPECT_EQ(devices.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(devices.status().message(), HasSubstr("no driver; install it"));
  EXPECT_EQ(absent->opened, 0);
}

TEST(BackendRegistry, FindsByName) {
  BackendRegistry registry = built_in_backends();
  ASSERT_NE(registry.find("cpu"), nullptr);
  EXPECT_EQ(registry.find("cpu")->name(), "cpu");
  EXPECT_TRUE(registry.find("cpu")->availability().is_ok());
  EXPECT_FALSE(registry.find("cpu")->list_devices().empty());
  EXPECT_EQ(registry.find("cp"), nullptr);
}

}  // namespace
}  // namespace stagecoach
