#pragma once

#include <mutex>
#include <vector>

#include "memory/node_binder.h"

namespace stagecoach {

/// A system with any nodes, for tests: pages lie where they were bound, or on node 0.
class FakeNodeBinder final : public NodeBinder {
 public:
  bool forbids_pages = false;    ///< mbind and set_mempolicy: EPERM
  bool forbids_threads = false;  ///< sched_setaffinity: EPERM
  bool forbids_looking = false;  ///< move_pages: EPERM
  bool ignores_binding = false;  ///< answers ok and leaves pages on node 0

  /// What threads were bound to, in order.
  std::vector<std::vector<int>> threads() const {
    std::lock_guard lock(mutex_);
    return threads_;
  }
  int64_t calls() const {
    std::lock_guard lock(mutex_);
    return calls_;
  }

  Status bind_pages(std::byte* /*data*/, ByteCount /*size*/, int node) override {
    return bind(node);
  }
  Status bind_allocations(int node) override { return bind(node); }
  Status bind_thread(const std::vector<int>& cpus) override {
    std::lock_guard lock(mutex_);
    ++calls_;
    if (forbids_threads) return unavailable("sched_setaffinity: Operation not permitted");
    threads_.push_back(cpus);
    return Status::ok();
  }
  Result<PageNodes> find_pages(const std::byte* /*data*/, ByteCount /*size*/) override {
    std::lock_guard lock(mutex_);
    ++calls_;
    if (forbids_looking) return unavailable("move_pages: Operation not permitted");
    PageNodes nodes;
    nodes.pages[bound_] = 8;
    return nodes;
  }

 private:
  Status bind(int node) {
    std::lock_guard lock(mutex_);
    ++calls_;
    if (forbids_pages) return unavailable("mbind: Operation not permitted");
    if (!ignores_binding) bound_ = node;
    return Status::ok();
  }

  mutable std::mutex mutex_;
  int bound_ = 0;
  int64_t calls_ = 0;
  std::vector<std::vector<int>> threads_;
};

}  // namespace stagecoach
