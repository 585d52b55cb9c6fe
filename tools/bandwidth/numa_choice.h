#pragma once

#include <memory>
#include <string>
#include <vector>

#include "memory/host_nodes.h"
#include "memory/node_binder.h"
#include "memory/node_placement.h"

namespace stagecoach {

/// Which NUMA nodes `--numa` asks for.
enum class NodeWish : uint8_t {
  kLocal,   ///< a device's own node; threads and their memory on one node
  kRemote,  ///< every other
  kAll,     ///< both
  kOne      ///< a node by its number
};

/// Where threads of a host measurement run and their memory lies.
struct HostPlace {
  int thread_node = 0;
  int memory_node = 0;
};

/// What `--numa` says about this host. Plain data, but for who binds.
struct NumaChoice {
  NodeWish wish = NodeWish::kLocal;
  int node = 0;  ///< of kOne
  HostNodes nodes;
  NodeBinder* binder = nullptr;  ///< never null

  /// The nodes that memory of a device attached to `device_node` (-1: unknown, then the first with
  /// processors) is measured on, its own first. Memory-only nodes are among them.
  std::vector<int> copy_nodes(int device_node) const;
  /// Where host threads are measured: never on nodes without processors.
  std::vector<HostPlace> host_places() const;
  /// Whether memory on `node` is a device's own.
  bool is_local(int memory_node, int device_node) const { return memory_node == home(device_node); }

  std::shared_ptr<NodePlacement> placement(int memory_node) const {
    return std::make_shared<NodePlacement>(nodes, memory_node, *binder);
  }
  /// What people should know of a device's node or of a host without nodes; empty: nothing.
  std::string note_about(const std::string& device, int device_node) const;

 private:
  int home(int device_node) const;
};

/// Reads "local", "remote", "all" or the number of a node. Errors: invalid argument for anything
/// else, a node that the process cannot use, and "remote" where there is one node.
Result<NumaChoice> choose_numa(const std::string& text, HostNodes nodes, NodeBinder& binder);

}  // namespace stagecoach
