#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/status.h"
#include "scheduler/plan.h"

namespace stagecoach {

/// A text and the name to call it by in messages.
struct NamedText {
  std::string_view name;
  std::string_view text;
};

/// The order of a plan in the action syntax of torch.distributed.pipelining: a row a device, an
/// action a cell: stage number, kind (F, B, I, W), micro-batch, as "2F0". Two actions that share a
/// slot are "(2F0;1B3)OVERLAP_F_B"; a fused FB is the same with one stage and micro-batch,
/// "(2F0;2B0)OVERLAP_F_B", so every file loads there. Pure.
std::string plan_to_csv(const Plan& plan);

/// What the syntax cannot say: policies and layer ranges. Lines "key,value" and one
/// "stage,NUMBER,KIND,FIRST,LAST" for each entry of Plan::stages. Pure.
std::string plan_to_sidecar(const Plan& plan);

/// Reads both back; plan_from_csv(plan_to_csv(p), plan_to_sidecar(p)) == p for every valid plan.
/// Without a sidecar a stage is one layer, one update takes all micro-batches, and the plan is
/// bound if every stage is on one device only. Empty cells (idle) are skipped. Bad input (including
/// communication actions and stages the sidecar lacks) is an invalid argument that names text, line
/// and column, what was found and what is allowed. The result is not validated. Pure.
Result<Plan> plan_from_csv(NamedText csv, std::optional<NamedText> sidecar);

}  // namespace stagecoach
