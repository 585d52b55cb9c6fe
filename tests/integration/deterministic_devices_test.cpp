// train.deterministic reaches the devices.
#include <gtest/gtest.h>
#include <optional>

#include "hal/backend_registry.h"
#include "tests/fake_gpu/fake_gpu_machine.h"
#include "train/model_session.h"

namespace stagecoach {
namespace {

TEST(DeterministicDevices, TheSettingReachesTheLibraries) {
  std::optional<bool> seen;
  FakeGpuMachine machine({}, [&](const GpuLibraryRequest& request) {
    seen = request.is_deterministic;
    return nullptr;
  });
  BackendRegistry registry;
  registry.add(machine.make_backend());
  TrainConfig config;
  config.devices.use = "fake_gpu:0";
  for (const auto& [setting, expected] :
       {std::pair("true", true), std::pair("auto", false), std::pair("false", false)}) {
    seen.reset();
    config.train.deterministic = setting;
    ASSERT_TRUE(open_configured_devices(registry, config).is_ok());
    EXPECT_EQ(seen, expected) << setting;
  }
}

}  // namespace
}  // namespace stagecoach
