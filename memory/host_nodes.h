#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/bytes.h"
#include "core/status.h"

namespace stagecoach {

/// A NUMA node of the host, as far as this process may use it.
struct HostNode {
  int index = 0;               ///< the system's number; numbers may have gaps
  std::vector<int> cpus;       ///< that this process may run on; none: memory only
  ByteCount memory_bytes = 0;  ///< 0: processors only
};

/// The nodes of the host. Plain data.
struct HostNodes {
  std::vector<HostNode> nodes;  ///< at least one, by rising number
  bool is_told = true;          ///< false: the system knows of none, and the only one stands in

  /// The node of that number, or null.
  const HostNode* find(int index) const;
  /// Those that host threads can run on.
  std::vector<int> with_cpus() const;
  /// Those that memory can lie on; processors need not belong to them.
  std::vector<int> with_memory() const;
  /// "0, 2, 5".
  std::string list() const;
};

namespace internal {

/// Where the nodes are read from; all empty: from this machine.
struct HostNodeInputs {
  std::string synthetic;                     ///< a description of hwloc's
  std::string xml;                           ///< what `lstopo --of xml` writes
  std::optional<std::vector<int>> affinity;  ///< processors that the process may run on
};

/// Errors: invalid argument for descriptions that hwloc cannot read; unavailable where it cannot
/// read the machine.
Result<HostNodes> read_host_nodes(const HostNodeInputs& inputs);

}  // namespace internal

/// The nodes of this machine that the process may use: cpusets and affinity count. Nodes without
/// processors and memory are left out. Of nodes at the same processors the first has them, the
/// others are memory only (GPU memory of Grace Hopper). Where the system knows no nodes there is
/// one, number 0, with everything. Errors: unavailable where hwloc cannot read the machine.
Result<HostNodes> read_host_nodes();

}  // namespace stagecoach
