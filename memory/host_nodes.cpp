#include "memory/host_nodes.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <hwloc.h>
#include <memory>
#include <sched.h>
#include <type_traits>

namespace stagecoach {

namespace {

struct HostTreeDestroyer {
  void operator()(hwloc_topology_t tree) const { hwloc_topology_destroy(tree); }
};
using HostTree = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, HostTreeDestroyer>;

struct CpuSetDestroyer {
  void operator()(hwloc_bitmap_t set) const { hwloc_bitmap_free(set); }
};
using CpuSet = std::unique_ptr<std::remove_pointer_t<hwloc_bitmap_t>, CpuSetDestroyer>;

Result<HostTree> load_tree(const internal::HostNodeInputs& inputs) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return internal_error("hwloc_topology_init failed");
  HostTree tree(raw);
  bool is_read = true;
  if (!inputs.synthetic.empty()) {
    is_read = hwloc_topology_set_synthetic(raw, inputs.synthetic.c_str()) == 0;
  } else if (!inputs.xml.empty()) {
    is_read = hwloc_topology_set_xmlbuffer(raw, inputs.xml.c_str(),
                                           static_cast<int>(inputs.xml.size() + 1)) == 0;
  }
  if (!is_read) return invalid_argument("hwloc cannot read this description of a machine");
  if (hwloc_topology_load(raw) == 0) return tree;
  return unavailable("hwloc cannot read this machine's topology; check that /sys is mounted");
}

/// What the process may run on; nothing where all of it.
CpuSet affinity_of(hwloc_topology_t tree, const internal::HostNodeInputs& inputs) {
  CpuSet set(hwloc_bitmap_alloc());
  if (set == nullptr) return nullptr;
  if (inputs.affinity.has_value()) {
    for (int cpu : *inputs.affinity) hwloc_bitmap_set(set.get(), static_cast<unsigned>(cpu));
    return set;
  }
  // Of a described machine nobody knows; hwloc itself would answer "all".
  if (hwloc_get_cpubind(tree, set.get(), HWLOC_CPUBIND_THREAD) != 0) return nullptr;
  return hwloc_bitmap_iszero(set.get()) ? nullptr : std::move(set);
}

std::vector<int> members(hwloc_const_bitmap_t set) {
  std::vector<int> all;
  for (int one = hwloc_bitmap_first(set); one >= 0; one = hwloc_bitmap_next(set, one)) {
    all.push_back(one);
  }
  return all;
}

std::vector<hwloc_obj_t> node_objects(hwloc_topology_t tree) {
  std::vector<hwloc_obj_t> objects;
  int count = hwloc_get_nbobjs_by_type(tree, HWLOC_OBJ_NUMANODE);
  for (int at = 0; at < count; ++at) {
    objects.push_back(hwloc_get_obj_by_type(tree, HWLOC_OBJ_NUMANODE, at));
  }
  std::sort(objects.begin(), objects.end(),
            [](hwloc_obj_t a, hwloc_obj_t b) { return a->os_index < b->os_index; });
  return objects;
}

HostNodes whole_host(hwloc_topology_t tree, hwloc_const_bitmap_t affinity) {
  CpuSet cpus(hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(tree)));
  if (cpus != nullptr && affinity != nullptr) hwloc_bitmap_and(cpus.get(), cpus.get(), affinity);
  HostNodes nodes;
  nodes.is_told = false;
  hwloc_obj_t root = hwloc_get_root_obj(tree);
  nodes.nodes.push_back({0, cpus == nullptr ? std::vector<int>{} : members(cpus.get()),
                         static_cast<ByteCount>(root->total_memory)});
  return nodes;
}

std::vector<int> those(const HostNodes& nodes, bool (*are_wanted)(const HostNode&)) {
  std::vector<int> wanted;
  for (const HostNode& node : nodes.nodes) {
    if (are_wanted(node)) wanted.push_back(node.index);
  }
  return wanted;
}

}  // namespace

const HostNode* HostNodes::find(int index) const {
  for (const HostNode& node : nodes) {
    if (node.index == index) return &node;
  }
  return nullptr;
}

std::vector<int> HostNodes::with_cpus() const {
  return those(*this, [](const HostNode& node) { return !node.cpus.empty(); });
}

std::vector<int> HostNodes::with_memory() const {
  // A system that tells no sizes has memory all the same.
  bool are_sizes_known = std::any_of(nodes.begin(), nodes.end(),
                                     [](const HostNode& node) { return node.memory_bytes > 0; });
  if (!are_sizes_known) return those(*this, [](const HostNode&) { return true; });
  return those(*this, [](const HostNode& node) { return node.memory_bytes > 0; });
}

std::string HostNodes::list() const {
  return fmt::format("{}", fmt::join(those(*this, [](const HostNode&) { return true; }), ", "));
}

Result<HostNodes> internal::read_host_nodes(const HostNodeInputs& inputs) {
  STAGECOACH_ASSIGN_OR_RETURN(HostTree tree, load_tree(inputs));
  CpuSet affinity = affinity_of(tree.get(), inputs);
  CpuSet left(hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(tree.get())));
  CpuSet own(hwloc_bitmap_alloc());
  if (left == nullptr || own == nullptr) return internal_error("hwloc has no memory left");
  if (affinity != nullptr) hwloc_bitmap_and(left.get(), left.get(), affinity.get());
  HostNodes nodes;
  for (hwloc_obj_t object : node_objects(tree.get())) {
    hwloc_bitmap_and(own.get(), object->cpuset, left.get());
    hwloc_bitmap_andnot(left.get(), left.get(), own.get());
    HostNode node{static_cast<int>(object->os_index), members(own.get()),
                  static_cast<ByteCount>(object->attr->numanode.local_memory)};
    if (!node.cpus.empty() || node.memory_bytes > 0) nodes.nodes.push_back(std::move(node));
  }
  return nodes.nodes.empty() ? whole_host(tree.get(), affinity.get()) : nodes;
}

Result<HostNodes> read_host_nodes() {
  return internal::read_host_nodes({});
}

}  // namespace stagecoach
