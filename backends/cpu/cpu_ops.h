#pragma once

#include <string_view>

#include "core/status.h"
#include "core/task_pool.h"
#include "hal/op_call.h"

namespace stagecoach {

/// Computes a validated call now, on the calling thread and `pool`. Operands are this device's
/// memory. Errors found in the data (a token id outside the vocabulary) are data loss.
/// Bits do not depend on the pool's thread count: work is cut into tiles fixed by shape alone.
/// Thread rule: any number of calls at once on disjoint outputs.
Status run_cpu_op(const OpCall& call, TaskPool& pool);

/// Which implementation serves `kind`: "oneDNN" or "own loops".
std::string_view cpu_op_provider(OpKind kind);

}  // namespace stagecoach
