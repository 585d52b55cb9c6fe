#pragma once

#include <functional>
#include <memory>

#include "core/task_pool.h"

namespace stagecoach {

/// A pool whose threads are its own and nobody else's, so that they may be bound to processors:
/// `on_start` (may be empty) is the first thing that each of them does. The caller's thread, which
/// takes part too, is left as it is.
std::unique_ptr<TaskPool> create_thread_task_pool(int thread_count,
                                                  const std::function<void()>& on_start);

}  // namespace stagecoach
