#pragma once

#include <vector>

#include "core/bytes.h"
#include "memory/budget.h"
#include "scheduler/network.h"
#include "scheduler/plan.h"
#include "scheduler/planner.h"

namespace stagecoach {

/// Bytes of each boundary of one micro-batch that a plan with these `stages` brings home; 0: it
/// does not. Pure.
std::vector<ByteCount> home_boundaries(const Network& network, const MicroBatchShape& shape,
                                       const std::vector<Stage>& stages);
/// The same of all plans of a run, which share one place for each. Pure.
std::vector<ByteCount> home_boundaries(const Network& network, const MicroBatchShape& shape,
                                       const PlannedRun& run);

/// Batches on the host at a time: passes of steps that overlap have one each. Pure.
int batches_in_flight(UpdateMode update);

/// What does not depend on how a run is planned: its state and its batch. Pure.
HostNeed host_need_before_planning(const Network& network, const PlanRequest& request,
                                   Residence residence);
/// All host memory that training by `run` allocates: what `train` checks and `inspect` prints.
/// Pure.
HostNeed host_need(const Network& network, const PlanRequest& request, Residence residence,
                   const PlannedRun& run);

/// What a second pass before a step takes beside that: the sums of gradients that one round of one
/// pass has none of. 0 where `rounds` are added up anyhow. Pure.
ByteCount kept_gradient_bytes(const Network& network, int rounds);

}  // namespace stagecoach
