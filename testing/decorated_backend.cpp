#include "testing/decorated_backend.h"

#include <utility>

#include "testing/decorated_device.h"

namespace stagecoach {

DecoratedBackend::DecoratedBackend(std::unique_ptr<Backend> inner,
                                   std::shared_ptr<Interceptor> interceptor)
    : inner_(std::move(inner)), interceptor_(std::move(interceptor)) {}

Result<std::vector<std::unique_ptr<Device>>> DecoratedBackend::open(const DeviceSpec& spec) {
  std::vector<std::unique_ptr<Device>> devices;
  STAGECOACH_ASSIGN_OR_RETURN(devices, inner_->open(spec));
  return decorate_devices(std::move(devices), interceptor_);
}

std::vector<std::unique_ptr<Device>> decorate_devices(std::vector<std::unique_ptr<Device>> devices,
                                                      std::shared_ptr<Interceptor> interceptor) {
  for (std::unique_ptr<Device>& device : devices) {
    device = std::make_unique<DecoratedDevice>(std::move(device), interceptor);
  }
  return devices;
}

}  // namespace stagecoach
