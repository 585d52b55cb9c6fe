#include "backends/cpu/cpu_backend.h"

#include <fmt/format.h>
#include <mutex>

#include "backends/cpu/cpu_device.h"

namespace stagecoach {

namespace {

/// One pool for the process, however many registries open devices: host threads are shared by all.
std::shared_ptr<TaskPool> process_pool() {
  static std::mutex mutex;
  static std::weak_ptr<TaskPool> shared;
  std::lock_guard lock(mutex);
  std::shared_ptr<TaskPool> pool = shared.lock();
  if (pool == nullptr) {
    pool = TaskPool::create(usable_thread_count());
    shared = pool;
  }
  return pool;
}

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(std::shared_ptr<TaskPool> pool) : pool_(std::move(pool)) {}

  std::string_view name() const override { return "cpu"; }
  Status availability() override { return Status::ok(); }

  std::vector<DeviceInfo> list_devices() override {
    // Any number can be opened; one stands for the host.
    CpuDevice device(0, CpuDeviceOptions{}, nullptr);
    DeviceInfo info = device.info();
    info.name = fmt::format("host ({} threads), opened as cpu:N", usable_thread_count());
    return {info};
  }

  Result<std::vector<std::unique_ptr<Device>>> open(const DeviceSpec& spec) override {
    STAGECOACH_ASSIGN_OR_RETURN(std::vector<CpuDeviceOptions> options, parse_cpu_options(spec));
    if (pool_ == nullptr) pool_ = process_pool();
    std::vector<std::unique_ptr<Device>> devices;
    int index = spec.first_index;
    for (const CpuDeviceOptions& one : options) {
      devices.push_back(std::make_unique<CpuDevice>(index++, one, pool_));
    }
    return devices;
  }

 private:
  std::shared_ptr<TaskPool> pool_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(std::shared_ptr<TaskPool> pool) {
  return std::make_unique<CpuBackend>(std::move(pool));
}

}  // namespace stagecoach
