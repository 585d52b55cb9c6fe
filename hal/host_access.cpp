#include "hal/host_access.h"

namespace stagecoach {

namespace internal {
std::atomic<HostAccessObserver*> host_access_observer = nullptr;
}  // namespace internal

void set_host_access_observer(HostAccessObserver* observer) {
  internal::host_access_observer.store(observer, std::memory_order_release);
}

}  // namespace stagecoach
