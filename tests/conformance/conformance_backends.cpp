#include "tests/conformance/conformance_backends.h"

#include <fmt/format.h>

#include "backends/register_backends.h"
#include "tests/fake_gpu/fake_gpu_machine.h"

namespace stagecoach {

namespace {

ConformanceBackend cpu_variant(std::string name, std::string options) {
  ConformanceBackend backend;
  backend.name = std::move(name);
  backend.open = [options](int count) {
    return built_in_backends().open_devices(fmt::format("cpu:{}[{}]", count, options));
  };
  backend.test_kernels.name = "stagecoach_test_kernels";
  return backend;
}

/// The template of the GPU backends on a fake machine: two cards, or two logical devices of one.
ConformanceBackend fake_gpu_variant(std::string name, int card_count, std::string which) {
  FakeGpuOptions options;
  options.card_count = card_count;
  options.memory_bytes = 2 * kConformanceMemoryBytes;
  auto machine = std::make_shared<FakeGpuMachine>(options);
  ConformanceBackend backend;
  backend.name = std::move(name);
  backend.open = [machine, which](int) { return machine->open(which); };
  backend.test_kernels = FakeGpuMachine::test_kernels();
  backend.cannot[Feature::kAsyncFailure] =
      "a GPU kernel cannot fail its own stream: its failure is the whole card's";
  return backend;
}

}  // namespace

std::vector<ConformanceBackend> conformance_backends() {
  return {
      cpu_variant("cpu", "memory=16M"),
      cpu_variant("cpu_paced", "memory=16M,flops=50G,speed=0.5,h2d=4G,d2h=4G,latency=10us"),
      fake_gpu_variant("fake_gpu", 2, "all"),
      fake_gpu_variant("fake_gpu_x2", 1, "0x2"),
  };
}

}  // namespace stagecoach
