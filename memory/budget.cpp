#include "memory/budget.h"

#include <fmt/format.h>

namespace stagecoach {

Status check_host_need(const HostNeed& need, const HostLimits& limits, std::string_view advice) {
  ByteCount wanted = need.total() + kHostReserve;
  if (wanted <= limits.free_bytes) return Status::ok();
  return resource_exhausted(fmt::format(
      "this run needs {} ({} bytes) of host memory: {} training state, {} where more gradients "
      "land, {} activations between stages, {} batches{}, and {} that are left free; {} ({} bytes) "
      "are free by {}. {}, or free {}",
      format_bytes(wanted), wanted, format_bytes(need.state.state()),
      format_bytes(need.state.landing), format_bytes(need.boundaries), format_bytes(need.staging),
      need.devices > 0 ? fmt::format(", {} for devices that are mocks", format_bytes(need.devices))
                       : "",
      format_bytes(kHostReserve), format_bytes(limits.free_bytes), limits.free_bytes,
      limits.free_source, advice, format_bytes(wanted - limits.free_bytes)));
}

}  // namespace stagecoach
