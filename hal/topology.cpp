#include "hal/topology.h"

#include <hwloc.h>
#include <type_traits>

namespace stagecoach {

namespace {

struct TopologyDestroyer {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using HwlocTopology = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, TopologyDestroyer>;

Result<HwlocTopology> load_topology() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return internal_error("hwloc_topology_init failed");
  HwlocTopology topology(raw);
  if (hwloc_topology_load(raw) != 0) {
    return unavailable("hwloc cannot read this machine's topology; check that /sys is mounted");
  }
  return topology;
}

std::vector<NumaNode> read_nodes(hwloc_topology_t topology) {
  std::vector<NumaNode> nodes;
  int count = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE);
  for (int i = 0; i < count; ++i) {
    hwloc_obj_t object = hwloc_get_obj_by_type(topology, HWLOC_OBJ_NUMANODE, i);
    int cores = hwloc_get_nbobjs_inside_cpuset_by_type(topology, object->cpuset, HWLOC_OBJ_CORE);
    nodes.push_back(NumaNode{static_cast<int>(object->os_index), cores,
                             static_cast<ByteCount>(object->attr->numanode.local_memory)});
  }
  if (nodes.empty()) {
    hwloc_obj_t root = hwloc_get_root_obj(topology);
    nodes.push_back(NumaNode{0, hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE),
                             static_cast<ByteCount>(root->total_memory)});
  }
  return nodes;
}

}  // namespace

Result<Topology> Topology::discover(const std::vector<Device*>& devices) {
  STAGECOACH_ASSIGN_OR_RETURN(HwlocTopology host, load_topology());
  Topology topology;
  topology.nodes = read_nodes(host.get());
  int count = static_cast<int>(devices.size());
  for (int source = 0; source < count; ++source) {
    for (int target = 0; target < count; ++target) {
      if (source != target) topology.links.push_back(PeerLink{source, target});
    }
  }
  return topology;
}

}  // namespace stagecoach
