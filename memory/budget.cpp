#include "memory/budget.h"

#include <fmt/format.h>

namespace stagecoach {

Status check_host_need(const HostNeed& need, const HostLimits& limits) {
  if (need.total() <= limits.free_bytes) return Status::ok();
  return resource_exhausted(fmt::format(
      "this run needs {} ({} bytes) of host memory: {} training state, {} where more gradients "
      "land, {} activations between stages, {} batches{}; {} ({} bytes) are free by {}. Use fewer "
      "or smaller micro-batches (train.microbatches, train.batch, data.sequence), a smaller model "
      "or model.dtype = \"bf16\", or free {}",
      format_bytes(need.total()), need.total(), format_bytes(need.state.state()),
      format_bytes(need.state.landing), format_bytes(need.boundaries), format_bytes(need.staging),
      need.devices > 0 ? fmt::format(", {} for devices that are mocks", format_bytes(need.devices))
                       : "",
      format_bytes(limits.free_bytes), limits.free_bytes, limits.free_source,
      format_bytes(need.total() - limits.free_bytes)));
}

}  // namespace stagecoach
