#include "memory/budget.h"

#include <fmt/format.h>

namespace stagecoach {

Status check_host_need(const HostNeed& need, const HostLimits& limits, std::string_view advice) {
  ByteCount wanted = need.total() + kHostReserve;
  if (wanted <= limits.free_bytes) return Status::ok();
  return resource_exhausted(fmt::format(
      "this run needs {} ({} bytes) of host memory: {} training state, {} where more gradients "
      "land, {} activations between stages, {} batches{}{}, and {} that are left free; {} ({} "
      "bytes) "
      "are free by {}. {}, or free {}",
      format_bytes(wanted), wanted, format_bytes(need.state.state()),
      format_bytes(need.state.landing), format_bytes(need.boundaries), format_bytes(need.staging),
      need.devices > 0 ? fmt::format(", {} for devices that are mocks", format_bytes(need.devices))
                       : "",
      need.save_copies > 0 ? fmt::format(", {} for copies while saving (output.save_copy)",
                                         format_bytes(need.save_copies))
                           : "",
      format_bytes(kHostReserve), format_bytes(limits.free_bytes), limits.free_bytes,
      limits.free_source, advice, format_bytes(wanted - limits.free_bytes)));
}

std::string describe_pinning(const Pinning& pinning, const HostLimits& limits) {
  if (pinning.slow == 0) return "";
  std::string text = fmt::format(
      "pinned host memory: {} of {} could be had; {} of what travels is pageable, which copies "
      "more slowly",
      format_bytes(pinning.pinned), format_bytes(pinning.asked), format_bytes(pinning.slow));
  if (limits.lockable_bytes && *limits.lockable_bytes < pinning.asked) {
    return text +
           fmt::format("; raise ulimit -l, which is {}", format_bytes(*limits.lockable_bytes));
  }
  return text + "; end what else pins memory, or raise the limit of the driver or container";
}

}  // namespace stagecoach
