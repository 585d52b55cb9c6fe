#include "tests/conformance/conformance_backends.h"

#include <fmt/format.h>

#include "backends/register_backends.h"
#include "testing/decorated_backend.h"
#include "testing/recording_backend.h"
#include "tests/fake_gpu/fake_gpu_machine.h"
#if STAGECOACH_CUDA
#include "backends/cuda/cuda_kernels.h"
#endif
#if STAGECOACH_HIP
#include "backends/hip/hip_kernels.h"
#endif

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

/// The same behind a decorator that changes nothing: what holds for devices holds for those too.
ConformanceBackend recorded(ConformanceBackend inner) {
  auto open_inner = inner.open;
  inner.name += "_recorded";
  inner.open = [open_inner](int count) -> Result<std::vector<std::unique_ptr<Device>>> {
    STAGECOACH_ASSIGN_OR_RETURN(auto devices, open_inner(count));
    auto recorder = std::make_shared<Recorder>(std::make_shared<OperationLog>());
    return decorate_devices(std::move(devices), std::move(recorder));
  };
  return inner;
}

constexpr const char* kNoAsyncFailure =
    "a GPU's queue cannot be emptied: work behind a reported error still runs";

/// The template of the GPU backends on a fake machine: two cards, or two logical devices of one.
ConformanceBackend fake_gpu_variant(std::string name, int card_count, std::string which) {
  FakeGpuOptions options;
  options.card_count = card_count;
  options.memory_bytes = 3 * kConformanceMemoryBytes;
  options.identities = FakeIdentities::kCards;
  auto machine = std::make_shared<FakeGpuMachine>(options);
  ConformanceBackend backend;
  backend.name = std::move(name);
  backend.open = [machine, which](int) { return machine->open(which); };
  backend.test_kernels = FakeGpuMachine::test_kernels();
  backend.cannot[Feature::kAsyncFailure] = kNoAsyncFailure;
  return backend;
}

/// Cards that this machine has: two logical devices of the first, and the first two.
[[maybe_unused]] void add_cards(const char* name, const std::shared_ptr<GpuKernelTable>& table,
                                std::vector<ConformanceBackend>& backends) {
  BackendRegistry registry = built_in_backends();
  Backend* found = registry.find(name);
  if (found == nullptr || !found->availability().is_ok()) return;
  auto add = [&](std::string variant, std::string devices) {
    ConformanceBackend backend;
    backend.name = std::move(variant);
    backend.open = [devices](int) { return built_in_backends().open_devices(devices); };
    backend.test_kernels = ExecutableImage{"test kernels", table->code().image};
    backend.cannot[Feature::kAsyncFailure] = kNoAsyncFailure;
    backends.push_back(std::move(backend));
  };
  add(fmt::format("{}_x2", name), fmt::format("{}:0x2[memory=1G]", name));
  if (found->list_devices().size() < 2) return;
  add(name, fmt::format("{0}:0[memory=1G],{0}:1[memory=1G]", name));
}

}  // namespace

std::vector<ConformanceBackend> conformance_backends() {
  std::vector<ConformanceBackend> backends = {
      cpu_variant("cpu", "memory=16M"),
      recorded(cpu_variant("cpu", "memory=16M")),
      cpu_variant("cpu_paced", "memory=16M,flops=50G,speed=0.5,h2d=4G,d2h=4G,latency=10us"),
      fake_gpu_variant("fake_gpu", 2, "all"),
      fake_gpu_variant("fake_gpu_x2", 1, "0x2"),
  };
#if STAGECOACH_CUDA
  add_cards("cuda", make_cuda_kernel_table(), backends);
#endif
#if STAGECOACH_HIP
  add_cards("hip", make_hip_kernel_table(), backends);
#endif
  return backends;
}

}  // namespace stagecoach
