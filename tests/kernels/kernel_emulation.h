#pragma once

#include <cstdint>

#include "backends/gpu/gpu_launch_plan.h"
#include "backends/gpu/gpu_library.h"
#include "core/status.h"

namespace stagecoach {

/// Runs the launches of a plan on the host, on host memory: the same kernel source, compiled as
/// C++, with a fiber for every thread of a block. Slow, deterministic, and without a GPU. Takes the
/// plain multiply-add path wherever a GPU would use its matrix units. `library` computes, on the
/// host too, what it serves of the plan.
/// Errors: invalid argument for a kernel that does not exist or takes another number of arguments.
/// Thread rule: one at a time in the process.
Status emulate_plan(const GpuLaunchPlan& plan, uint64_t* error_word, GpuLibrary* library = nullptr);

}  // namespace stagecoach
