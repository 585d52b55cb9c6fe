#pragma once

#include <memory>

#include "core/task_pool.h"
#include "hal/backend.h"

namespace stagecoach {

/// The reference backend: devices that compute for real on host threads and, with pacing options,
/// stand in for a machine of GPUs. See docs/cpu_backend.md for the device-string options.
/// All CPU devices of the process share one pool of `usable_thread_count` threads, made when the
/// first device opens, unless `pool` is given.
std::unique_ptr<Backend> make_cpu_backend(std::shared_ptr<TaskPool> pool = nullptr);

}  // namespace stagecoach
