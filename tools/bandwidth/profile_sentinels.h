#pragma once

#include <functional>
#include <span>

#include "scheduler/machine_profile.h"
#include "tools/bandwidth/bandwidth_plan.h"
#include "tools/bandwidth/profile_check.h"

namespace stagecoach {

/// A few figures of a profile, to be measured again in about two seconds: a copy up and down of
/// each card, and updates by the profile's number of threads.
struct SentinelPlan {
  BandwidthPlan measurements;
  std::vector<SentinelResult> expected;  ///< parallel to the ids of the plan
};

/// Plans them for `devices`, which are the profile's cards, on a host with `free_bytes`. Of
/// `options` limits of memory, seed, time limit and `filter` count. Errors: a filter that leaves
/// nothing. The devices and the pool must outlive the plan. Allocates nothing.
Result<SentinelPlan> plan_sentinels(const MachineProfile& profile,
                                    std::span<const MeasuredDevice> devices,
                                    BandwidthOptions options, ByteCount free_bytes, TaskPool& pool);

/// Measures them; a result each.
std::vector<SentinelResult> run_sentinels(SentinelPlan plan);

}  // namespace stagecoach
