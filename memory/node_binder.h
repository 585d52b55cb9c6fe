#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <vector>

#include "core/bytes.h"
#include "core/status.h"

namespace stagecoach {

/// Where pages lie, of those that were looked at.
struct PageNodes {
  std::map<int, int64_t> pages;  ///< by node
  int64_t unknown = 0;           ///< that the system tells nothing about, such as a driver's own
};

/// How pages and threads are bound to NUMA nodes: by the system, or by a test in its place. Errors
/// of all members: unavailable, with the system's reason (a container's filter of system calls, a
/// node that does not exist).
/// Thread rule: any thread.
class NodeBinder {
 public:
  virtual ~NodeBinder() = default;

  /// Pages of [data, data + size) that nobody has touched come from `node` and no other.
  virtual Status bind_pages(std::byte* data, ByteCount size, int node) = 0;
  /// What the calling thread asks for from now on comes from `node` and no other.
  virtual Status bind_allocations(int node) = 0;
  /// The calling thread runs on `cpus` and no others.
  virtual Status bind_thread(const std::vector<int>& cpus) = 0;
  /// Looks where pages of [data, data + size) lie, at most some hundred of them.
  virtual Result<PageNodes> find_pages(const std::byte* data, ByteCount size) = 0;
};

/// Asks the system.
NodeBinder& system_node_binder();

/// Runs `work` on a thread that is bound to `cpus` (none: that is not bound) and waits for it.
/// Whether it could be bound; `work` is done either way.
Status run_on_cpus(NodeBinder& binder, const std::vector<int>& cpus,
                   const std::function<void()>& work);

}  // namespace stagecoach
