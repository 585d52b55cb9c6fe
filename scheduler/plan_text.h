#pragma once

#include <string>
#include <vector>

#include "scheduler/plan.h"
#include "scheduler/plan_simulation.h"

namespace stagecoach {

/// How a schedule's entries are written.
enum class OrderNotation : uint8_t {
  kChunks,      ///< F3, or F3a and F3b where a device has several model stages
  kDirections,  ///< F3 from the first stage's end, F3' from the last one's
  kVersions,    ///< F3@1: with the version of the weights
  kSlots        ///< F0:3, B1:3: stage of the pass (the fused stage is B0), micro-batch
};

/// Entries of each device in the order they ran, in the notation. Entries
/// that share a slot are one string, "F3a+B1b". Pure.
std::vector<std::vector<std::string>> order_text(const Plan& plan, const PlanTimeline& timeline,
                                                 OrderNotation notation);

}  // namespace stagecoach
