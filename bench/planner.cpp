// How long does planning take? README.md says how to read the rows.
#include <benchmark/benchmark.h>
#include <random>

#include "scheduler/stage_planner.h"

namespace stagecoach {
namespace {

/// Decoder blocks behind an embedding and before a head; `spread` of 0 makes all blocks equal.
StepSetup model_of(int layers, int devices, double spread, bool transfers) {
  std::mt19937_64 generator(7);
  std::uniform_real_distribution<double> factor(1 - spread, 1 + spread);
  StepSetup setup;
  for (int index = 0; index < layers; ++index) {
    LayerProfile layer;
    layer.name = "h." + std::to_string(index);
    double scale = index == 0 ? 0.05 : index + 1 == layers ? 2 : 1;
    scale *= 1e7 * factor(generator);
    layer.forward_ns = layer.recompute_ns = scale;
    layer.backward_ns = 2 * scale;
    layer.parameter_bytes = layer.gradient_bytes = 400 << 20;
    layer.gradient_sum_bytes = 800 << 20;
    layer.boundary_bytes = 16 << 20;
    layer.saved_bytes = 100 << 20;
    if (transfers) layer.update_ns = scale / 4;
    setup.layers.push_back(layer);
  }
  for (int device = 0; device < devices; ++device) {
    double rate = transfers ? 25 : 0;
    setup.devices.push_back({"gpu", 1, ByteCount{24} << 30, rate, rate});
  }
  setup.micro_batches = 16;
  setup.rounds = 2;
  setup.update = UpdateMode::kOverlap;
  return setup;
}

/// layers, devices, spread in per cent, transfers
void plan(benchmark::State& state) {
  StepSetup setup = model_of(static_cast<int>(state.range(0)), static_cast<int>(state.range(1)),
                             static_cast<double>(state.range(2)) / 100, state.range(3) != 0);
  for (auto _ : state) {
    Result<PlannedStages> planned = plan_stages(setup);
    state.counters["stages"] = static_cast<double>(planned->slots.stages.size());
    state.counters["bubble"] = planned->prediction.bubble;
    state.counters["candidates"] = static_cast<double>(planned->candidates);
    state.counters["slots"] = static_cast<double>(planned->slots_visited);
  }
}

BENCHMARK(plan)
    ->ArgNames({"layers", "devices", "spread", "transfers"})
    ->ArgsProduct({{36, 94}, {4, 8}, {0, 50}, {0, 1}})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace stagecoach

BENCHMARK_MAIN();
