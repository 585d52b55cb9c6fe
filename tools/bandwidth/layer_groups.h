#pragma once

#include "tools/bandwidth/group_builder.h"

namespace stagecoach {

/// Layers of models of several widths, pass by pass: what operations cost where others stand beside
/// them. Real cards compute in bf16 on sizes that are trained; mocks, which `quick` and `full`
/// leave out because their pace says it all, in fp32 on small ones.
void add_layers(GroupBuilder& builder);

}  // namespace stagecoach
