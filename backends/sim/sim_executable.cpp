#include "backends/sim/sim_executable.h"

#include <cmath>
#include <fmt/format.h>

#include "backends/sim/sim_device.h"

namespace stagecoach {

namespace {

class BusyKernel final : public Kernel {
 public:
  std::string_view name() const override { return kTimedKernel; }
};

class SimExecutable final : public Executable {
 public:
  Result<Kernel*> find_kernel(std::string_view name) override {
    if (name == kTimedKernel) return static_cast<Kernel*>(&busy_);
    return not_found(
        fmt::format("no kernel '{}'; simulated devices have '{}'", name, kTimedKernel));
  }

 private:
  BusyKernel busy_;
};

}  // namespace

Result<std::unique_ptr<Executable>> load_sim_executable(const ExecutableImage& image) {
  if (image.name == kTimedKernels) return std::unique_ptr<Executable>(new SimExecutable);
  return not_found(fmt::format("'{}' is nothing that a simulated device runs; it has '{}'",
                               image.name, kTimedKernels));
}

int64_t sim_kernel_time_ns(const LaunchRequest& request, const SimDevice& device) {
  if (request.argument_count < 1) return 0;
  return std::llround(static_cast<double>(request.arguments[0].integer) / device.info().speed);
}

}  // namespace stagecoach
