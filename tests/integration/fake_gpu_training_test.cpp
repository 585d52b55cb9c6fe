// Training runs on the template of the GPU backends. The fake driver's kernels are the CPU oracle,
// so every bit of the weights must be the CPU's.
#include "backends/cpu/cpu_backend.h"
#include "tests/fake_gpu/fake_gpu_machine.h"
#include "tests/integration/training_fixture.h"

namespace stagecoach::testing {
namespace {

constexpr int kIterations = 5;

class FakeGpuTraining : public ::testing::Test {
 protected:
  FakeGpuTraining() {
    registry_.add(make_cpu_backend());
    registry_.add(machine_.make_backend());
  }

  TinyRun run_on(const std::string& devices) {
    TinyRun run;
    run.devices = devices;
    run.iterations = kIterations;
    return run;
  }
  std::string weights_of(const TinyRun& run) {
    Result<TinyResult> result = train_tiny(run, registry_);
    EXPECT_TRUE(result.is_ok()) << result.status().to_string();
    return result.is_ok() ? result->weights_sha256 : "failed";
  }

  FakeGpuMachine machine_;
  BackendRegistry registry_;
};

TEST_F(FakeGpuTraining, OneCardGivesTheCpusBits) {
  EXPECT_EQ(weights_of(run_on("fake_gpu:0")), weights_of(run_on("cpu:1")));
  EXPECT_EQ(machine_.driver().leaks(), "");
}

TEST_F(FakeGpuTraining, CardsLogicalDevicesAndMixedPoolsGiveTheSameBits) {
  const std::string expected = weights_of(run_on("cpu:1"));
  for (const char* devices : {"fake_gpu:all", "fake_gpu:0x2", "cpu:1,fake_gpu:0"}) {
    EXPECT_EQ(weights_of(run_on(devices)), expected) << devices;
  }
  EXPECT_EQ(machine_.driver().leaks(), "");
}

TEST_F(FakeGpuTraining, BoundSchedulesGiveTheSameBits) {
  const std::string expected = weights_of(run_on("cpu:1"));
  for (const char* schedule : {"1f1b", "zb-v"}) {
    for (const char* devices : {"fake_gpu:all", "cpu:1,fake_gpu:0"}) {
      TinyRun run = run_on(devices);
      run.options.schedule = schedule;
      EXPECT_EQ(weights_of(run), expected) << schedule << " on " << devices;
    }
  }
  EXPECT_EQ(machine_.driver().leaks(), "");
}

TEST_F(FakeGpuTraining, AKernelThatFailsEndsTheRunWithItsSite) {
  machine_.driver().fail_next_kernel(FakeGpuError::kLaunchFailed);
  Result<TinyResult> result = train_tiny(run_on("fake_gpu:all"), registry_);
  EXPECT_EQ(result.status().code(), StatusCode::kDeviceLost) << result.status().to_string();
  EXPECT_EQ(result.status().site().device.rfind("fake_gpu:", 0), 0u);
}

}  // namespace
}  // namespace stagecoach::testing
