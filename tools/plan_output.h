#pragma once

#include <string>

#include "core/json.h"
#include "scheduler/step_model.h"
#include "tools/model_plan.h"

namespace stagecoach {

/// {"forward": [[first, last] …], "fused": [first, last], "backward": [[first, last] …]}, backward
/// in running order.
Json stages_to_json(const std::vector<Stage>& stages);
/// The same for people: "forward 0-3 4-7, fused 8-9, backward 4-7 0-3".
std::string stages_to_text(const std::vector<Stage>& stages);

/// {"compute": {"busy_fraction": …} …}
Json lanes_to_json(const StepPrediction& prediction);
std::string lanes_to_text(const StepPrediction& prediction);

/// Bytes of each tier: regions of a device, and what the host keeps.
Json memory_to_json(const ModelPlan& plan);
std::string memory_to_text(const ModelPlan& plan);

}  // namespace stagecoach
