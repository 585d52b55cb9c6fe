#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/task_pool.h"
#include "memory/node_placement.h"

namespace stagecoach {

/// On which processors the threads of a measurement run.
struct ThreadPlace {
  NodeBinder* binder = nullptr;  ///< null: wherever the system lets them
  std::vector<int> cpus;
};

/// A pool of `thread_count` threads for `run_at`, all but the caller's bound.
std::unique_ptr<TaskPool> create_pool_at(const ThreadPlace& place, int thread_count);

/// Runs `work` bound, on a thread of its own where there is something to bind. Whether it could be
/// bound; `work` is done either way.
Status run_at(const ThreadPlace& place, const std::function<void()>& work);

/// Why memory or threads may not be where they were asked for; empty: they are, or nobody asked.
/// `memory` may be null.
std::string doubt_of(const NodePlacement* memory, const ThreadPlace& place);

}  // namespace stagecoach
