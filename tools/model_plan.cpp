#include "tools/model_plan.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <functional>
#include <initializer_list>

#include "core/clock.h"
#include "memory/activation_store.h"
#include "scheduler/network_profile.h"
#include "scheduler/stage_memory.h"
#include "scheduler/update_cost.h"
#include "tools/model_options.h"
#include "tools/op_layer_times.h"
#include "train/run_memory.h"
#include "train/trainer_options.h"

namespace stagecoach {

namespace {

/// Host memory of training by these stages.
HostNeed need_of(const Network& network, const ModelPlanRequest& request,
                 const MicroBatchShape& shape, const std::vector<Stage>& stages) {
  PlanRequest step;
  step.shape = shape;
  step.micro_batches = request.micro_batches;
  step.rounds = request.rounds;
  step.update = request.update;
  step.moments = request.moments;
  HostNeed need = host_need_before_planning(network, step, Residence::kStreamed);
  need.boundaries =
      ActivationStore::bytes(home_boundaries(network, shape, stages), request.micro_batches);
  return need;
}

StepSetup setup_for(const Network& network, const ModelPlanRequest& request,
                    const RatedDevices& rated) {
  StepSetup setup;
  ProfileRates rates{rated.flop_per_s, rated.host_bytes_per_s,
                     update_bytes_per_parameter(network.dtype, request.rounds, request.moments)};
  setup.layers = profile_network(network, request.shape, rates);
  use_rated_devices(rated, setup);
  setup.micro_batches = request.micro_batches;
  setup.rounds = request.rounds;
  setup.update = request.update;
  setup.gated = request.gated;
  return setup;
}

/// Replaces layer times by those of operations, as the device that is fastest with them takes them;
/// says where times come from.
Result<std::string> use_op_times(const Network& network, const MicroBatchShape& shape,
                                 const RatedDevices& rated, StepSetup& setup) {
  const std::string by_flop = "layer times are FLOP by rate; nothing was measured";
  for (const OpRates& ops : rated.ops) {
    if (ops.is_empty()) return by_flop;
  }
  std::vector<OpLayerTimes> all;
  size_t fastest = 0;
  for (size_t device = 0; device < rated.ops.size(); ++device) {
    double flop_per_s = rated.flop_per_s * rated.devices[device].speed;
    Result<OpLayerTimes> times =
        time_layers_by_ops(network, shape, {&rated.ops[device], flop_per_s}, setup.layers);
    if (times.status().code() == StatusCode::kUnimplemented) return by_flop;
    if (!times.is_ok()) return times.status();
    all.push_back(std::move(*times));
    if (all.back().total_ns < all[fastest].total_ns) fastest = device;
  }
  setup.layers = all[fastest].layers;
  for (size_t device = 0; device < all.size(); ++device) {
    setup.devices[device].speed = all[fastest].total_ns / all[device].total_ns;
  }
  std::string source = "layer times are those of operations as the profile has them";
  const std::vector<std::string>& guessed = all[fastest].guessed;
  if (guessed.empty()) return source;
  return fmt::format("{}; it has none like {}, which are guessed", source,
                     fmt::join(guessed, ", "));
}

constexpr int64_t kMostSequence = int64_t{1} << 26;

/// Largest value from 1 to about `most` for which `fits`, which holds up to some value only; 0 when
/// never.
int64_t largest(int64_t most, const std::function<bool(int64_t)>& fits) {
  int64_t good = 0, bad = 1;
  while (bad < most && fits(bad)) {
    good = bad;
    bad *= 2;
  }
  while (bad - good > 1) {
    int64_t middle = good + (bad - good) / 2;
    (fits(middle) ? good : bad) = middle;
  }
  return good;
}

}  // namespace

Result<ModelPlan> plan_model(const Network& network, const ModelPlanRequest& request,
                             const RatedDevices& rated) {
  ModelPlan plan;
  plan.setup = setup_for(network, request, rated);
  STAGECOACH_ASSIGN_OR_RETURN(plan.layer_times,
                              use_op_times(network, request.shape, rated, plan.setup));
  int64_t start_ns = RealClock::instance().now_ns();
  STAGECOACH_ASSIGN_OR_RETURN(plan.plan, plan_for_devices(plan.setup));
  plan.plan_ms = static_cast<double>(RealClock::instance().now_ns() - start_ns) / 1e6;
  const std::vector<Stage>& stages = plan.plan.planned.slots.stages;
  plan.device_bytes = CostTable(plan.setup.layers).bytes(stages);
  plan.host = need_of(network, request, request.shape, stages);
  if (request.checks_host) {
    STAGECOACH_RETURN_IF_ERROR(check_host_need(plan.host, request.host, kModelAdvice));
  }
  return plan;
}

namespace {

/// The same step, on the devices that the plan uses, with updates that take no time.
double step_without_updates_ns(const ModelPlan& plan) {
  StepSetup without = plan.setup;
  for (LayerProfile& layer : without.layers) {
    layer.update_ns = 0;
    layer.update_bytes = 0;
  }
  without.devices.clear();
  for (int device : plan.plan.devices) without.devices.push_back(plan.setup.devices[device]);
  return predict_step(without, CostTable(without.layers), plan.plan.planned.slots).step_ns;
}

/// What the devices of the plan take together for a round's slots, those of `kinds` alone.
double round_ns(const ModelPlan& plan, std::initializer_list<ActionKind> kinds) {
  CostTable costs(plan.setup.layers);
  double slots_ns = 0, speeds = 0;
  for (const Stage& stage : plan.plan.planned.slots.stages) {
    bool counts = std::find(kinds.begin(), kinds.end(), stage.kind) != kinds.end();
    if (counts) slots_ns += costs.time_ns(stage);
  }
  for (int device : plan.plan.devices) speeds += plan.setup.devices[device].speed;
  return plan.setup.round_size() * slots_ns / speeds;
}

}  // namespace

UpdateTimes update_times(const ModelPlan& plan) {
  const StepPrediction& prediction = plan.plan.planned.prediction;
  UpdateTimes times;
  times.update_ns = CostTable(plan.setup.layers).update_ns();
  if (plan.setup.update == UpdateMode::kBarrier) {
    times.exposed_ns = prediction.update_exposed_ns;
    return times;
  }
  double without_ns = step_without_updates_ns(plan);
  times.exposed_ns = std::max(0.0, prediction.step_ns - without_ns);
  if (plan.setup.update == UpdateMode::kAsync) {
    times.window_ns = without_ns;
  } else {
    times.window_ns = round_ns(plan, {ActionKind::kForward});
    if (!plan.setup.gated) times.window_ns += round_ns(plan, {ActionKind::kBackward});
  }
  return times;
}

PlanExplanation explain_plan(const ModelPlan& plan) {
  PlanExplanation explanation;
  const StepSetup& setup = plan.setup;
  CostTable costs(setup.layers);
  const std::vector<Stage>& stages = plan.plan.planned.slots.stages;
  std::vector<StageLoad> loads = costs.loads(stages);
  // A round's stages together: short stages borrow time from long ones.
  double slots_ns = 0, in_bytes = 0, parameter_bytes = 0, speeds = 0, up_rate = 0;
  for (const StageLoad& load : loads) {
    slots_ns += load.time_ns;
    in_bytes += static_cast<double>(load.in_bytes);
    parameter_bytes += static_cast<double>(load.parameter_bytes);
  }
  bool has_links = true;
  for (int device : plan.plan.devices) {
    speeds += setup.devices[device].speed;
    up_rate += setup.devices[device].up_bytes_per_ns;
    has_links = has_links && setup.devices[device].up_bytes_per_ns > 0;
  }
  explanation.hidden_from_round = 1;
  if (has_links) {
    double room = slots_ns / speeds - in_bytes / up_rate;
    explanation.hidden_from_round.reset();
    if (room > 0) {
      explanation.hidden_from_round =
          std::max(1, static_cast<int>(std::ceil(parameter_bytes / up_rate / room)));
    }
  }
  Result<PlannedStages> rule = plan_by_roundpipe_rule(setup);
  if (rule.is_ok()) explanation.rule = std::move(rule).value();
  return explanation;
}

LongestSequences longest_sequences(const Network& network, const ModelPlanRequest& request,
                                   const RatedDevices& rated, int64_t positions) {
  std::vector<Stage> stages = narrowest_stages(static_cast<int>(network.layers.size()));
  // Devices that hold less are left out.
  ByteCount most = 0;
  bool is_limited = true;
  for (const PlannedDevice& device : rated.devices) {
    is_limited = is_limited && device.memory_bytes > 0;
    most = std::max(most, device.memory_bytes);
  }
  LongestSequences longest;
  longest.positions = positions;
  longest.host = request.host;
  int64_t longest_at_all =
      std::min(kMostSequence, kMostTokens / (request.shape.sequences * request.micro_batches));
  longest.device = largest(longest_at_all, [&](int64_t sequence) {
    MicroBatchShape shape{request.shape.sequences, sequence};
    return !is_limited || device_memory_need(network, stages, shape).total() <= most;
  });
  longest.tokens_of_host = largest(longest_at_all, [&](int64_t sequence) {
    MicroBatchShape shape{request.shape.sequences, sequence};
    return check_host_need(need_of(network, request, shape, stages), longest.host).is_ok();
  });
  return longest;
}

}  // namespace stagecoach
