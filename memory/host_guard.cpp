#include "memory/host_guard.h"

#include <fmt/format.h>

#include "core/clock.h"
#include "memory/budget.h"

namespace stagecoach {

Status HostGuard::check() {
  int64_t now_ns = RealClock::instance().now_ns();
  if (looked_ns_ && now_ns - *looked_ns_ < interval_ns_) return Status::ok();
  looked_ns_ = now_ns;
  STAGECOACH_ASSIGN_OR_RETURN(HostLimits limits, read_());
  if (limits.free_bytes >= kHostFloor) return Status::ok();
  return resource_exhausted(fmt::format(
      "{} ({} bytes) of host memory are left by {}, less than the {} below which a run stops "
      "rather than being killed; end other programs or raise the limit",
      format_bytes(limits.free_bytes), limits.free_bytes, limits.free_source,
      format_bytes(kHostFloor)));
}

}  // namespace stagecoach
