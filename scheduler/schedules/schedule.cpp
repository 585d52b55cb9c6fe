#include "scheduler/schedules/schedule.h"

#include <algorithm>
#include <fmt/format.h>

#include "core/suggest.h"
#include "scheduler/plan_validation.h"
#include "scheduler/schedules/schedule_checks.h"
#include "scheduler/schedules/schedule_list.h"

namespace stagecoach {

const std::vector<ScheduleParameter>& schedule_parameters() {
  static const std::vector<ScheduleParameter> parameters = {
      {"chunks", &ScheduleParameters::chunks,
       "model stages a device (interleaved, looped-bfs, mobius: 2; zb-h1: 1)"},
      {"group", &ScheduleParameters::group,
       "micro-batches that pass a chunk together (interleaved, zb-h1: N)"},
      {"accumulation", &ScheduleParameters::accumulation,
       "micro-batches of one update (paci, pipedream-2bw: N)"},
      {"round", &ScheduleParameters::round, "micro-batches of one round (roundpipe, single: M)"},
      {"forward-stages", &ScheduleParameters::forward_stages,
       "forward slots (roundpipe, single, slidedp: 3)"},
      {"backward-stages", &ScheduleParameters::backward_stages,
       "backward slots with the fused one (roundpipe, single: forward-stages + 1)"},
      {"gate-slack", &ScheduleParameters::slack,
       "more forwards in flight, up to the distance to the last stage (1f1b, pipedream, paci: 0)"},
      {"gate", &ScheduleParameters::gate,
       "1: a gate admits forwards while the plan runs (paci: 0)"},
      {"iterations", &ScheduleParameters::iterations,
       "iterations in a row, synchronous schedules and roundpipe (1)"},
      {"barrier", &ScheduleParameters::barrier,
       "1: iterations start when all gradients of the one before are there (0)"},
      {"asynchronous", &ScheduleParameters::asynchronous,
       "1: weights of the update before last (roundpipe: 0)"},
      {"reverse-backward", &ScheduleParameters::reverse_backward,
       "1: backward from the last micro-batch to the first (gpipe, looped-bfs: 0)"},
      {"memory-limit", &ScheduleParameters::memory_limit,
       "activations a device may hold, in stage units (zb-1p: N, zb-2p: 2N)"}};
  return parameters;
}

const std::vector<Schedule>& all_schedules() {
  static const std::vector<Schedule> schedules = {
      single_schedule(),      roundpipe_schedule(),     gpipe_schedule(),    one_f_one_b_schedule(),
      interleaved_schedule(), looped_bfs_schedule(),    mobius_schedule(),   zb_h1_schedule(),
      zb_h2_schedule(),       zb_1p_schedule(),         zb_2p_schedule(),    zb_v_schedule(),
      v_half_schedule(),      v_min_schedule(),         dualpipe_schedule(), dualpipev_schedule(),
      pipedream_schedule(),   pipedream_2bw_schedule(), paci_schedule(),     slidedp_schedule()};
  return schedules;
}

Result<const Schedule*> find_schedule(std::string_view name) {
  std::vector<std::string> names;
  for (const Schedule& schedule : all_schedules()) {
    if (schedule.name == name) return &schedule;
    names.emplace_back(schedule.name);
  }
  std::string nearest = nearest_name(name, names);
  std::string hint = nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest);
  return not_found(fmt::format("no schedule is called '{}'{} Schedules: {}", name,
                               hint.empty() ? "." : hint, fmt::join(names, ", ")));
}

namespace {

/// Refuses plans of more entries than a machine has memory for.
Status check_extent(const Schedule& schedule, const ScheduleParameters& parameters) {
  constexpr int64_t kMaxEntries = 20'000'000;
  int64_t stages = std::max({parameters.stages, parameters.forward_stages.value_or(1),
                             parameters.backward_stages.value_or(1)});
  int64_t passes = stages * parameters.chunks.value_or(1);
  int64_t micro_batches =
      static_cast<int64_t>(parameters.micro_batches) * parameters.iterations.value_or(1);
  if (passes <= kMaxEntries / micro_batches) return Status::ok();
  return invalid_argument(
      fmt::format("schedule {}: {} stages of {} micro-batches are more than {} entries; use fewer",
                  schedule.name, passes, micro_batches, kMaxEntries));
}

}  // namespace

Status check_parameters(const Schedule& schedule, const ScheduleParameters& parameters) {
  for (const ScheduleParameter& parameter : schedule_parameters()) {
    const std::optional<int>& value = parameters.*parameter.value;
    if (!value) continue;
    const std::vector<std::string_view>& taken = schedule.parameters;
    // Wherever iterations follow each other, what lies between them is a choice.
    std::string_view needed = parameter.name == "barrier" ? "iterations" : parameter.name;
    if (std::find(taken.begin(), taken.end(), needed) == taken.end()) {
      std::string others = taken.empty() ? "" : fmt::format(", {}", fmt::join(taken, ", "));
      return invalid_argument(
          fmt::format("schedule {} has no parameter {}; it has stages, microbatches{}",
                      schedule.name, parameter.name, others));
    }
    STAGECOACH_RETURN_IF_ERROR(check_range(schedule.name, parameter.name, *value, 0, kNoMaximum));
  }
  return Status::ok();
}

Result<Plan> make_plan(const Schedule& schedule, const ScheduleParameters& parameters) {
  STAGECOACH_RETURN_IF_ERROR(check_range(schedule.name, "stages", parameters.stages, 1, 4096));
  STAGECOACH_RETURN_IF_ERROR(
      check_range(schedule.name, "microbatches", parameters.micro_batches, 1, kNoMaximum));
  STAGECOACH_RETURN_IF_ERROR(check_parameters(schedule, parameters));
  int iterations = parameters.iterations.value_or(1);
  STAGECOACH_RETURN_IF_ERROR(check_range(schedule.name, "iterations", iterations, 1, 100'000));
  STAGECOACH_RETURN_IF_ERROR(check_extent(schedule, parameters));
  STAGECOACH_ASSIGN_OR_RETURN(Plan plan, schedule.make(parameters));
  // RoundPipe's rotation runs on, so it has made all iterations itself.
  if (iterations > 1 && plan.accumulation == 0) plan = repeat_plan(plan, iterations);
  int barrier = parameters.barrier.value_or(0);
  STAGECOACH_RETURN_IF_ERROR(check_range(schedule.name, "barrier", barrier, 0, 1));
  if (barrier != 0) {
    if (plan.version_rule != VersionRule::kFlush) {
      return refuse_parameter(schedule.name, "barrier", barrier,
                              "0 where updates are asynchronous");
    }
    plan.update_scope = UpdateScope::kModel;
  }
  STAGECOACH_RETURN_IF_ERROR(validate_plan(plan, plan.layer_count(), false));
  return plan;
}

int schedule_chunks(const Schedule& schedule, const ScheduleParameters& parameters) {
  return schedule.chunks == nullptr ? 1 : schedule.chunks(parameters);
}

}  // namespace stagecoach
