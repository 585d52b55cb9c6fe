#include "scheduler/virtual_run.h"

#include <algorithm>
#include <fmt/format.h>

#include "memory/activation_store.h"
#include "memory/arena.h"
#include "scheduler/device_memory.h"
#include "scheduler/network_state.h"
#include "scheduler/stage_executor.h"

namespace stagecoach {

namespace {

/// What goes into a pass and comes out of it, for every micro-batch: address space only.
Result<Arena> make_batch(const VirtualRun& run, PassInput& input) {
  const Network& network = *run.network;
  ByteCount in = network.layers.front()->input().size_bytes(run.shape);
  ByteCount out = network.layers.back()->output().size_bytes(run.shape);
  ByteCount reports = network.report_bytes(run.shape);
  ByteCount each = Arena::padded(in) + Arena::padded(out) + reports;
  for (RowInput rows : kRowInputs) {
    each += Arena::padded(network.row_input(rows).size_bytes(run.shape));
  }
  STAGECOACH_ASSIGN_OR_RETURN(
      Arena arena,
      Arena::create_pinned(*run.devices.front(), each * run.plan->micro_batches, "batch"));
  for (int m = 0; m < run.plan->micro_batches; ++m) {
    input.inputs.push_back(arena.take(in));
    for (RowInput rows : kRowInputs) {
      input.rows[rows].push_back(arena.take(network.row_input(rows).size_bytes(run.shape)));
    }
    input.losses.push_back(arena.take(out));
    if (reports > 0) input.reports.push_back(arena.take(reports));
  }
  return arena;
}

Result<std::unique_ptr<HostState>> make_state(const VirtualRun& run) {
  return HostState::create(
      *run.devices.front(), state_layouts(*run.network),
      state_options(*run.network, run.plan->rounds, run.plan->residence, UpdateMode::kBarrier, {}));
}

Result<ActivationStore> make_store(const VirtualRun& run) {
  int layer_count = static_cast<int>(run.network->layers.size());
  std::vector<bool> starts = stage_starts(run.plan->stages, layer_count);
  std::vector<ByteCount> boundary_bytes(static_cast<size_t>(layer_count) + 1, 0);
  for (int boundary = 1; boundary < layer_count; ++boundary) {
    auto index = static_cast<size_t>(boundary);
    if (starts[index]) {
      boundary_bytes[index] = run.network->layers[index]->input().size_bytes(run.shape);
    }
  }
  return ActivationStore::create(*run.devices.front(), boundary_bytes, run.plan->micro_batches);
}

/// What the plan needs on each device, no more.
std::vector<ByteCount> arena_sizes(const VirtualRun& run) {
  std::vector<StageLayout> layouts =
      layout_stages(*run.network, *run.plan, run.shape, run.recomputes);
  std::vector<ByteCount> sizes;
  for (int device = 0; device < run.plan->device_count(); ++device) {
    bool rounds_gradients = run.network->dtype != DType::kF32;
    sizes.push_back(carve_device_memory(*run.plan, layouts, device, rounds_gradients).need.total());
  }
  return sizes;
}

}  // namespace

Result<std::vector<IterationReport>> run_virtually(const VirtualRun& run) {
  for (Device* device : run.devices) {
    if (device->virtual_time() != nullptr) continue;
    return invalid_argument(fmt::format("device {} is none that is simulated", device->id()));
  }
  STAGECOACH_ASSIGN_OR_RETURN(std::unique_ptr<HostState> state, make_state(run));
  STAGECOACH_ASSIGN_OR_RETURN(ActivationStore store, make_store(run));
  PassInput input;
  STAGECOACH_ASSIGN_OR_RETURN(Arena batch, make_batch(run, input));
  StageExecutorSetup setup;
  setup.network = run.network;
  setup.devices = run.devices;
  setup.host_state = state.get();
  setup.store = &store;
  setup.host_worker = run.host_work;
  setup.shape = run.shape;
  setup.recomputes = run.recomputes;
  setup.arena_bytes = arena_sizes(run);
  STAGECOACH_ASSIGN_OR_RETURN(std::unique_ptr<StageExecutor> executor,
                              StageExecutor::create(setup));
  std::vector<IterationReport> reports;
  for (int pass = 0; pass < run.passes; ++pass) {
    input.iteration = static_cast<uint32_t>(pass);
    STAGECOACH_ASSIGN_OR_RETURN(IterationReport report, executor->run(*run.plan, input, run.trace));
    reports.push_back(report);
  }
  return reports;
}

}  // namespace stagecoach
