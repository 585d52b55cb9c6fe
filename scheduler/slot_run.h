#pragma once

#include <string_view>
#include <vector>

#include "scheduler/schedules/schedule_run.h"
#include "scheduler/step_model.h"

namespace stagecoach {

/// What predict_step computed when, as a plan that ran: all simulated iterations, on `devices`
/// devices, of which `places` says where those of `setup` are. Time 0 is the first computing. Pure.
ScheduleRun run_of_slots(std::string_view schedule, const StepSetup& setup, const SlotPlan& slots,
                         const std::vector<ComputedInterval>& timeline, int devices,
                         const std::vector<int>& places);

}  // namespace stagecoach
