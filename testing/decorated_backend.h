#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "hal/backend.h"
#include "testing/interceptor.h"

namespace stagecoach {

/// A backend around another one, of the same name: the devices it opens offer every verb to one
/// interceptor. With an interceptor that always forwards it behaves as the inner backend does.
/// Streams of decorated devices wait for events of decorated devices only. Decorators nest.
/// Thread rule: as Backend.
class DecoratedBackend final : public Backend {
 public:
  DecoratedBackend(std::unique_ptr<Backend> inner, std::shared_ptr<Interceptor> interceptor);

  std::string_view name() const override { return inner_->name(); }
  Status check(const DeviceSpec& spec) const override { return inner_->check(spec); }
  Status availability() override { return inner_->availability(); }
  std::vector<DeviceInfo> list_devices() override { return inner_->list_devices(); }
  Result<std::vector<std::unique_ptr<Device>>> open(const DeviceSpec& spec) override;

 private:
  std::unique_ptr<Backend> inner_;
  std::shared_ptr<Interceptor> interceptor_;
};

/// The same for devices already open.
std::vector<std::unique_ptr<Device>> decorate_devices(std::vector<std::unique_ptr<Device>> devices,
                                                      std::shared_ptr<Interceptor> interceptor);

}  // namespace stagecoach
