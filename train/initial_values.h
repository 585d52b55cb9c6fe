#pragma once

#include <cstdint>
#include <span>

#include "core/task_pool.h"
#include "scheduler/parameter_block.h"

namespace stagecoach {

/// Fills `out` with a parameter's elements from `first` on, by its initializer. Random numbers are
/// keyed by seed, name and element, so they depend neither on the order of parameters, nor on how
/// one is cut into pieces, nor on the pool's threads.
void fill_initial(const ParameterInfo& parameter, uint64_t seed, int64_t first,
                  std::span<float> out, TaskPool& pool);

}  // namespace stagecoach
