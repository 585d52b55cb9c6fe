#pragma once

#include <memory>
#include <string>

#include "backends/gpu/gpu_kernel_table.h"

namespace stagecoach {

/// The table of a program built where no device compiler was found: it has no code, which the
/// backend reports as the reason why it is not available, naming `build_flag`.
std::shared_ptr<GpuKernelTable> make_empty_kernel_table(std::string build_flag);

}  // namespace stagecoach
