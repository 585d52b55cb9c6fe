#include "tests/conformance/conformance_backends.h"

#include <fmt/format.h>

#include "backends/register_backends.h"

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

}  // namespace

std::vector<ConformanceBackend> conformance_backends() {
  return {
      cpu_variant("cpu", "memory=16M"),
      cpu_variant("cpu_paced", "memory=16M,flops=50G,speed=0.5,h2d=4G,d2h=4G,latency=10us"),
  };
}

}  // namespace stagecoach
