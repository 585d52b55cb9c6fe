#pragma once

#include <string_view>
#include <vector>

#include "scheduler/schedules/schedule.h"

namespace stagecoach {

/// A repeating pattern of the controllable-memory family (arXiv 2405.15362): slots at which Fa, Fb,
/// Ib and Ia of a micro-batch start on a rank; the next micro-batch follows six slots later.
struct VPattern {
  int forward_a = 0, forward_b = 0, input_b = 0, input_a = 0;
};

/// Plan of V placement from `pattern` (of one rank of N): ranks run forwards and input gradients in
/// the pattern's order as soon as they can, holding at most `memory_limit` micro-batches'
/// activations of the rank (both chunks), with weight gradients in the waits. A rank may prefer an
/// action up to two entries later when the next cannot run; the shortest of these choices wins.
/// Slots are equal (F = I = W). Pure.
Result<Plan> make_v_plan(std::string_view schedule, const ScheduleParameters& parameters,
                         VPattern (*pattern)(int stages, int rank), int memory_limit);

}  // namespace stagecoach
