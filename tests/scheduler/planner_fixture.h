#pragma once

#include <cmath>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <vector>

#include "scheduler/plan_measures.h"
#include "scheduler/plan_simulation.h"
#include "scheduler/plan_validation.h"
#include "scheduler/schedules/roundpipe.h"
#include "scheduler/stage_planner.h"

namespace stagecoach {

/// How many random models a test plans: `models`, a fifth of them under AddressSanitizer, where
/// planning takes many times as long and errors of memory show in the first models as in the last.
constexpr int random_models(int models) {
#ifdef __SANITIZE_ADDRESS__
  return models / 5;
#else
  return models;
#endif
}

inline LayerProfile layer_of(double forward_ns, double backward_ns) {
  LayerProfile layer;
  layer.name = "layer";
  layer.forward_ns = layer.recompute_ns = forward_ns;
  layer.backward_ns = backward_ns;
  return layer;
}

inline StepSetup setup_of(std::vector<LayerProfile> layers, int devices, int micro_batches,
                          int rounds, UpdateMode update) {
  StepSetup setup;
  setup.layers = std::move(layers);
  setup.devices.resize(devices);
  for (int device = 0; device < devices; ++device) {
    setup.devices[device].name = "d" + std::to_string(device);
  }
  setup.micro_batches = micro_batches;
  setup.rounds = rounds;
  setup.update = update;
  return setup;
}

/// Blocks of unequal lengths with a heavy head; whole ns, so that simulate_plan can repeat them.
inline std::vector<LayerProfile> random_layers(std::mt19937_64& generator, int count) {
  std::uniform_real_distribution<double> forward(2e5, 2e6), factor(1.5, 3);
  std::vector<LayerProfile> layers;
  for (int index = 0; index < count; ++index) {
    double time = std::floor(forward(generator) * (index + 1 == count ? 2 : 1));
    layers.push_back(layer_of(time, std::floor(time * factor(generator))));
  }
  return layers;
}

inline StepSetup random_setup(std::mt19937_64& generator, int layers) {
  auto pick = [&](int least, int most) {
    return least + static_cast<int>(generator() % (most - least + 1));
  };
  int devices = pick(1, 8), rounds = pick(1, 3);
  auto update = static_cast<UpdateMode>(pick(0, 2));
  StepSetup setup = setup_of(random_layers(generator, layers), devices,
                             rounds * pick(devices, devices + 4), rounds, update);
  if (pick(0, 2) == 0) setup.hop_ns = pick(1, 400'000);
  return setup;
}

/// Bytes for every layer, and devices of `memory_bytes` with a link.
inline void add_bytes(StepSetup& setup, std::mt19937_64& generator, ByteCount memory_bytes) {
  std::uniform_int_distribution<ByteCount> bytes(1 << 20, 8 << 20);
  for (LayerProfile& layer : setup.layers) {
    layer.parameter_bytes = bytes(generator);
    layer.gradient_bytes = layer.parameter_bytes;
    layer.gradient_sum_bytes = 2 * layer.parameter_bytes;
    layer.boundary_bytes = bytes(generator) / 8;
    layer.saved_bytes = bytes(generator) / 2;
    layer.forward_workspace_bytes = bytes(generator) / 8;
    layer.backward_workspace_bytes = bytes(generator) / 4;
    layer.update_ns = static_cast<double>(layer.parameter_bytes) / 50;
  }
  for (PlannedDevice& device : setup.devices) {
    device.memory_bytes = memory_bytes;
    device.up_bytes_per_ns = device.down_bytes_per_ns = 20;
  }
}

/// The plan that the slots stand for, `iterations` of it in a row.
inline Plan rotation_plan(const StepSetup& setup, const std::vector<Stage>& stages,
                          int iterations) {
  Plan plan = make_roundpipe_plan(stages, setup.device_count(), setup.micro_batches * iterations,
                                  setup.rounds * iterations, 0, Dispatch::kRotation);
  plan.accumulation = setup.micro_batches;
  if (setup.update == UpdateMode::kAsync) plan.version_rule = VersionRule::kDelayed;
  return plan;
}

/// End of compute of each measured iteration by event simulation of every micro-batch.
inline std::vector<double> simulated_ends_ns(const StepSetup& setup,
                                             const std::vector<Stage>& stages) {
  CostTable costs(setup.layers);
  int iterations = measured_iterations(setup).count;
  Plan plan = rotation_plan(setup, stages, iterations);
  ActionDuration duration = [&](int device, int index) {
    return std::llround(costs.time_ns(plan.stage_of(plan.device_actions[device][index])));
  };
  PlanTimeline timeline = simulate_plan(plan, costs.layer_count(), duration,
                                        uniform_hops(static_cast<int64_t>(setup.hop_ns)));
  std::vector<double> ends(iterations, 0);
  for (int device = 0; device < plan.device_count(); ++device) {
    for (size_t index = 0; index < plan.device_actions[device].size(); ++index) {
      int window = plan.window_of(plan.device_actions[device][index].micro_batch);
      double at = static_cast<double>(timeline.actions[device][index].end_ns);
      ends[window] = std::max(ends[window], at);
    }
  }
  for (int k = 1; k < iterations; ++k) ends[k] = std::max(ends[k], ends[k - 1]);
  return ends;
}

inline double mean_step_ns(const StepSetup& setup, const std::vector<double>& ends_ns) {
  MeasuredIterations iterations = measured_iterations(setup);
  double from = iterations.from < 0 ? 0 : ends_ns[iterations.from];
  return (ends_ns.back() - from) / iterations.measured();
}

}  // namespace stagecoach
