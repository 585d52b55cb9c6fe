#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "core/bytes.h"
#include "memory/host_nodes.h"
#include "memory/node_binder.h"

namespace stagecoach {

/// Puts memory on one NUMA node and then looks whether it lies there, since asking for it is not
/// having it: containers forbid the calls, and drivers take their memory where they like.
/// Thread rule: one thread at a time.
class NodePlacement {
 public:
  /// `nodes` has `node`. A host with one node that has memory needs nothing, and nothing is asked
  /// of it. `binder` must outlive it.
  NodePlacement(const HostNodes& nodes, int node, NodeBinder& binder);

  int node() const { return node_; }
  /// Binds pages that nobody has touched to the node and touches them, zeroing them. Where binding
  /// is refused threads of the node touch them first, which usually puts them there.
  void place(std::byte* data, ByteCount size);
  /// Runs `allocate`, which gets memory in its own way, on a thread of the node and with what it
  /// asks for bound to the node.
  void run(const std::function<void()>& allocate);
  /// Looks where [data, data + size), touched before, lies.
  void verify(const std::byte* data, ByteCount size);

  /// Why something that was placed or run may lie elsewhere; empty: all of it was seen to be there.
  const std::string& doubt() const { return doubt_; }

 private:
  void note_doubt(std::string doubt);

  int node_;
  bool has_choice_ = false;  ///< whether there is any other node
  std::vector<int> cpus_;    ///< of the node; none: memory only
  NodeBinder& binder_;
  std::string doubt_;
  std::string refusal_;  ///< of binding, which matters where pages then lie elsewhere
};

}  // namespace stagecoach
