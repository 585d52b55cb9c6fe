#pragma once

#include <optional>
#include <string_view>

#include "core/status.h"
#include "scheduler/schedules/schedule.h"

namespace stagecoach {

/// Refuses `value` of parameter `name` outside [min, max], by schedule, name and both limits.
Status check_range(std::string_view schedule, std::string_view name, int value, int min, int max);

/// No upper limit of its own.
inline constexpr int kNoMaximum = 1'000'000;

/// Refuses with "SCHEDULE: NAME = VALUE; must be ALLOWED".
Status refuse_parameter(std::string_view schedule, std::string_view name, int value,
                        std::string_view allowed);

/// `parameters.layers`, or one layer a stage; refuses layers for another number of stages.
Result<StageLayers> stage_layers(std::string_view schedule, const ScheduleParameters& parameters,
                                 int stage_count);

/// Idle share of `idle_ns` a device beside M micro-batches of forward and backward, by span or
/// makespan.
ClosedForm idle_share(const ScheduleParameters& parameters, const StageTimes& times, double idle_ns,
                      BubbleDefinition definition);

/// (N - 1) / (M * chunks + N - 1): loops of equal stages with a flush, for M a multiple of N (or
/// any M with one chunk).
std::optional<ClosedForm> looped_bubble(const ScheduleParameters& parameters, int chunks);

}  // namespace stagecoach
