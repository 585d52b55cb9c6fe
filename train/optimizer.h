#pragma once

#include <cstdint>

#include "core/bytes.h"
#include "core/task_pool.h"
#include "memory/host_state.h"
#include "train/update_kernel.h"

namespace stagecoach {

/// Sum of squares of what the update of `block` will read: its slots, those of several sites added
/// up in their order, or its fp32 sum. Finite exactly when all gradients are. Zero when frozen.
/// Thread rule: different blocks at once.
double gradient_sum_of_squares(HostState& state, int block, TaskPool& pool);
/// The sums of all blocks, added up in their order.
double gradient_sum_of_squares(HostState& state, TaskPool& pool);

/// Updates elements [offset, offset + count) of a trained `block`, all of one parameter, in place,
/// in one pass over gradients, moments, parameters and what devices read of them. Returns how many
/// elements were refused and left as they were because they or a moment would not be finite (see
/// update_piece): above zero, training must stop. With 8-bit moments ranges begin a multiple of
/// kMomentScaleElements behind the parameter. Thread rule: disjoint ranges at once.
int64_t update_parameters(HostState& state, int block, int64_t offset, int64_t count,
                          const UpdateNumbers& numbers, TaskPool& pool);

/// Host memory that the two touch for all of `block`, in bytes; 0 when frozen.
ByteCount gradient_bytes(HostState& state, int block);
ByteCount update_bytes(HostState& state, int block, UpdateRule rule);

}  // namespace stagecoach
