#include "tests/conformance/conformance_backends.h"

#include <fmt/format.h>

#include "backends/register_backends.h"
#include "testing/decorated_backend.h"
#include "testing/recording_backend.h"

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

}  // namespace

std::vector<ConformanceBackend> conformance_backends() {
  return {
      cpu_variant("cpu", "memory=16M"),
      recorded(cpu_variant("cpu", "memory=16M")),
      cpu_variant("cpu_paced", "memory=16M,flops=50G,speed=0.5,h2d=4G,d2h=4G,latency=10us"),
  };
}

}  // namespace stagecoach
