#pragma once

#include <cstdint>

#include "core/task_pool.h"
#include "scheduler/parameter_block.h"

namespace stagecoach {

/// Fills a parameter's elements from its initializer. Random numbers are keyed by seed and name, so
/// they depend neither on the order of parameters nor on the pool's threads.
void fill_initial(const ParameterInfo& parameter, uint64_t seed, float* data, TaskPool& pool);

}  // namespace stagecoach
