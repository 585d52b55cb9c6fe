#include "tools/model_plan.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fstream>
#include <functional>

#include "core/clock.h"
#include "scheduler/network_profile.h"
#include "scheduler/network_state.h"
#include "scheduler/stage_memory.h"
#include "scheduler/update_cost.h"

namespace stagecoach {

namespace {

HostStateBytes state_bytes(const Network& network, int rounds) {
  return host_state_bytes(state_layouts(network),
                          state_options(network, rounds, Residence::kStreamed));
}

ByteCount boundary_bytes(const Network& network, const std::vector<bool>& starts,
                         const ModelPlanRequest& request) {
  ByteCount bytes = 0;
  for (size_t layer = 1; layer < network.layers.size(); ++layer) {
    // A boundary and, where backward stages hand over, its gradient in the same place.
    if (starts[layer]) bytes += network.layers[layer]->input().size_bytes(request.shape);
  }
  return bytes * request.micro_batches;
}

StepSetup setup_for(const Network& network, const ModelPlanRequest& request,
                    const RatedDevices& rated) {
  StepSetup setup;
  ProfileRates rates{rated.flop_per_s, rated.host_bytes_per_s,
                     update_bytes_per_parameter(network.dtype, request.rounds, {})};
  setup.layers = profile_network(network, request.shape, rates);
  use_rated_devices(rated, setup);
  setup.micro_batches = request.micro_batches;
  setup.rounds = request.rounds;
  setup.update = request.update;
  return setup;
}

/// What the kernel says is there for everybody, or less where a limit is set.
ByteCount host_memory_bytes() {
  ByteCount total = 0;
  std::ifstream information("/proc/meminfo");
  std::string name, unit;
  for (ByteCount value = 0; information >> name >> value; std::getline(information, unit)) {
    if (name == "MemTotal:") total = value * kKiB;
  }
  std::ifstream limit("/sys/fs/cgroup/memory.max");
  ByteCount limited = 0;
  if (limit >> limited) total = std::min(total, limited);
  return total;
}

std::vector<Stage> single_layers(const Network& network) {
  auto count = static_cast<int>(network.layers.size());
  std::vector<Stage> stages;
  for (int layer = 0; layer + 1 < count; ++layer) {
    stages.push_back({ActionKind::kForward, layer, layer});
  }
  stages.push_back({ActionKind::kForwardBackward, count - 1, count - 1});
  for (int layer = count - 2; layer >= 0; --layer) {
    stages.push_back({ActionKind::kBackward, layer, layer});
  }
  return stages;
}

/// Largest value from 1 on for which `fits`, which holds up to some value only; 0 when never.
int64_t largest(const std::function<bool(int64_t)>& fits) {
  constexpr int64_t kMost = int64_t{1} << 26;
  int64_t good = 0, bad = 1;
  while (bad < kMost && fits(bad)) {
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
  int64_t start_ns = RealClock::instance().now_ns();
  STAGECOACH_ASSIGN_OR_RETURN(plan.plan, plan_for_devices(plan.setup));
  plan.plan_ms = static_cast<double>(RealClock::instance().now_ns() - start_ns) / 1e6;
  const std::vector<Stage>& stages = plan.plan.planned.slots.stages;
  plan.device_bytes = CostTable(plan.setup.layers).bytes(stages);
  std::vector<bool> starts = stage_starts(stages, static_cast<int>(network.layers.size()));
  plan.host.state = state_bytes(network, request.rounds);
  plan.host.activations = boundary_bytes(network, starts, request);
  if (request.host_memory_bytes == 0 || plan.host.total() <= request.host_memory_bytes) return plan;
  return resource_exhausted(fmt::format(
      "training needs {} of host memory ({} state, {} where more gradients land, {} activations), "
      "which has {}; use fewer or "
      "smaller micro-batches, adapters (--lora-rank) or a 16-bit --dtype",
      format_bytes(plan.host.total()), format_bytes(plan.host.state.state()),
      format_bytes(plan.host.state.landing), format_bytes(plan.host.activations),
      format_bytes(request.host_memory_bytes)));
}

PlanExplanation explain_plan(const ModelPlan& plan) {
  PlanExplanation explanation;
  const StepSetup& setup = plan.setup;
  CostTable costs(setup.layers);
  const std::vector<Stage>& stages = plan.plan.planned.slots.stages;
  std::vector<StageLoad> loads = costs.loads(stages);
  explanation.update_ns = costs.update_ns();
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
  double devices = static_cast<double>(plan.plan.devices.size());
  explanation.update_window_ns = setup.round_size() * slots_ns / devices;
  if (setup.update != UpdateMode::kBarrier) {
    // The same step with free updates.
    StepSetup without = setup;
    for (LayerProfile& layer : without.layers) layer.update_ns = 0;
    without.devices.clear();
    for (int device : plan.plan.devices) without.devices.push_back(setup.devices[device]);
    StepPrediction step = predict_step(without, CostTable(without.layers), plan.plan.planned.slots);
    explanation.exposed_ns = std::max(0.0, plan.plan.planned.prediction.step_ns - step.step_ns);
  } else {
    explanation.exposed_ns = plan.plan.planned.prediction.update_exposed_ns;
  }
  Result<PlannedStages> rule = plan_by_roundpipe_rule(setup);
  if (rule.is_ok()) explanation.rule = std::move(rule).value();
  return explanation;
}

LongestSequences longest_sequences(const Network& network, const ModelPlanRequest& request,
                                   const RatedDevices& rated, int64_t positions) {
  std::vector<Stage> stages = single_layers(network);
  std::vector<bool> starts(network.layers.size() + 1, true);
  // Devices that hold less are left out.
  ByteCount most = 0;
  bool is_limited = true;
  for (const PlannedDevice& device : rated.devices) {
    is_limited = is_limited && device.memory_bytes > 0;
    most = std::max(most, device.memory_bytes);
  }
  LongestSequences longest;
  longest.positions = positions;
  longest.host_bytes =
      request.host_memory_bytes > 0 ? request.host_memory_bytes : host_memory_bytes();
  longest.device = largest([&](int64_t sequence) {
    MicroBatchShape shape{request.shape.sequences, sequence};
    return !is_limited || device_memory_need(network, stages, shape).total() <= most;
  });
  ByteCount state = state_bytes(network, request.rounds).total();
  longest.host = largest([&](int64_t sequence) {
    ModelPlanRequest other = request;
    other.shape.sequence = sequence;
    return state + boundary_bytes(network, starts, other) <= longest.host_bytes;
  });
  return longest;
}

}  // namespace stagecoach
