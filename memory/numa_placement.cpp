#include "memory/numa_placement.h"

#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <hwloc.h>
#include <memory>

#include "core/log.h"

namespace stagecoach {

namespace {

/// Less is not worth reading the topology for.
constexpr ByteCount kLeastBytes = 64 * kMiB;

struct TopologyDestroyer {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};

}  // namespace

void spread_over_numa_nodes(std::byte* data, ByteCount size) {
  if (size < kLeastBytes) return;
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return;
  std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, TopologyDestroyer> topology(raw);
  if (hwloc_topology_load(raw) != 0) return;
  hwloc_const_nodeset_t nodes = hwloc_topology_get_allowed_nodeset(raw);
  if (nodes == nullptr || hwloc_bitmap_weight(nodes) <= 1) return;
  int failed = hwloc_set_area_membind(raw, data, static_cast<size_t>(size), nodes,
                                      HWLOC_MEMBIND_INTERLEAVE, HWLOC_MEMBIND_BYNODESET);
  if (failed == 0) return;
  log_info(fmt::format("host memory is not spread over {} NUMA nodes: {}",
                       hwloc_bitmap_weight(nodes), std::strerror(errno)));
}

}  // namespace stagecoach
