#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/plan.h"
#include "scheduler/plan_simulation.h"

namespace stagecoach {

/// Which version (number of updates) of its weights each stage used, by the plan's version rule.
struct WeightVersions {
  std::vector<std::vector<int>> forward;   ///< [stage number][micro-batch]
  std::vector<std::vector<int>> backward;  ///< [stage number][micro-batch]; of I where B is split
  std::vector<int> kept;                   ///< per device: most versions of one layer at a time
};

/// Versions of a training plan as it ran. A stage's k-th update comes with the last weight gradient
/// of its window k and lands `update_ns` later (an optimizer elsewhere; one update at a time, so it
/// must not take longer than a window); actions that start from then on see it. Only versions that
/// are "the newest local" ask for the time. Stage numbers are those of stage_numbers; entries that
/// never run on a number are -1. Pure.
WeightVersions weight_versions(const Plan& plan, const PlanTimeline& timeline,
                               int64_t update_ns = 0);

/// Updates between forward and backward of one micro-batch on one stage.
struct Drift {
  std::vector<int> max;      ///< per stage number
  std::vector<double> mean;  ///< per stage number
};

/// Backward minus forward version. Pure.
Drift version_drift(const WeightVersions& versions);

/// The bound on drift where a stage has at most `in_flight_limit` forwards awaiting backward and
/// updates every `accumulation` micro-batches: ceil((limit - 1) / accumulation). PACI's theorem
/// (arXiv 2606.07881) for limit N + 1 - i; it holds for any times, latencies and limits. Updates
/// that land later, one at a time, add at most 1. Pure.
int drift_bound(int in_flight_limit, int accumulation);

/// Forward and backward version of micro-batch `m` (from 0) in PACI's static order:
/// floor(max(0, m - (limit - 1)) / a) and floor(m / a). Pure.
int paci_forward_version(int micro_batch, int in_flight_limit, int accumulation);
int paci_backward_version(int micro_batch, int accumulation);

/// Versions between the weights a gradient was taken at and those it is added to: window - backward
/// version. Per stage number, the largest. Pure.
std::vector<int> gradient_delay(const Plan& plan, const WeightVersions& versions);

}  // namespace stagecoach
