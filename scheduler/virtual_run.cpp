#include "scheduler/virtual_run.h"

#include <algorithm>
#include <fmt/format.h>

#include "scheduler/device_memory.h"
#include "scheduler/network_state.h"

namespace stagecoach {

namespace {

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

Result<std::unique_ptr<DatalessPasses>> DatalessPasses::create(const VirtualRun& run) {
  std::unique_ptr<DatalessPasses> passes(new DatalessPasses(run));
  STAGECOACH_RETURN_IF_ERROR(passes->make_state());
  STAGECOACH_RETURN_IF_ERROR(passes->make_store());
  STAGECOACH_RETURN_IF_ERROR(passes->make_batch());
  STAGECOACH_RETURN_IF_ERROR(passes->make_executor());
  return passes;
}

/// What goes into a pass and comes out of it, for every micro-batch; of simulated devices it is
/// address space only.
Status DatalessPasses::make_batch() {
  const Network& network = *run_.network;
  ByteCount in = network.layers.front()->input().size_bytes(run_.shape);
  ByteCount out = network.layers.back()->output().size_bytes(run_.shape);
  ByteCount reports = network.report_bytes(run_.shape);
  ByteCount each = Arena::padded(in) + Arena::padded(out) + reports;
  for (RowInput rows : kRowInputs) {
    each += Arena::padded(network.row_input(rows).size_bytes(run_.shape));
  }
  STAGECOACH_ASSIGN_OR_RETURN(
      batch_,
      Arena::create_pinned(*run_.devices.front(), each * run_.plan->micro_batches, "batch"));
  for (int m = 0; m < run_.plan->micro_batches; ++m) {
    input_.inputs.push_back(batch_->take(in));
    for (RowInput rows : kRowInputs) {
      input_.rows[rows].push_back(batch_->take(network.row_input(rows).size_bytes(run_.shape)));
    }
    input_.losses.push_back(batch_->take(out));
    if (reports > 0) input_.reports.push_back(batch_->take(reports));
  }
  return Status::ok();
}

Status DatalessPasses::make_state() {
  STAGECOACH_ASSIGN_OR_RETURN(
      state_, HostState::create(*run_.devices.front(), state_layouts(*run_.network),
                                state_options(*run_.network, run_.plan->rounds,
                                              run_.plan->residence, UpdateMode::kBarrier, {})));
  return Status::ok();
}

Status DatalessPasses::make_store() {
  int layer_count = static_cast<int>(run_.network->layers.size());
  std::vector<bool> starts = stage_starts(run_.plan->stages, layer_count);
  std::vector<ByteCount> boundary_bytes(static_cast<size_t>(layer_count) + 1, 0);
  for (int boundary = 1; boundary < layer_count; ++boundary) {
    auto index = static_cast<size_t>(boundary);
    if (starts[index]) {
      boundary_bytes[index] = run_.network->layers[index]->input().size_bytes(run_.shape);
    }
  }
  STAGECOACH_ASSIGN_OR_RETURN(store_, ActivationStore::create(*run_.devices.front(), boundary_bytes,
                                                              run_.plan->micro_batches));
  return Status::ok();
}

Status DatalessPasses::make_executor() {
  StageExecutorSetup setup;
  setup.network = run_.network;
  setup.devices = run_.devices;
  setup.host_state = state_.get();
  setup.store = &*store_;
  setup.host_worker = run_.host_work;
  setup.shape = run_.shape;
  setup.recomputes = run_.recomputes;
  setup.arena_bytes = arena_sizes(run_);
  STAGECOACH_ASSIGN_OR_RETURN(executor_, StageExecutor::create(setup));
  return Status::ok();
}

Result<IterationReport> DatalessPasses::run_pass() {
  Result<IterationReport> report = executor_->run(*run_.plan, input_, run_.trace);
  ++input_.iteration;
  return report;
}

Result<std::vector<IterationReport>> run_virtually(const VirtualRun& run) {
  for (Device* device : run.devices) {
    if (device->virtual_time() != nullptr) continue;
    return invalid_argument(fmt::format("device {} is none that is simulated", device->id()));
  }
  STAGECOACH_ASSIGN_OR_RETURN(std::unique_ptr<DatalessPasses> passes, DatalessPasses::create(run));
  std::vector<IterationReport> reports;
  for (int pass = 0; pass < run.passes; ++pass) {
    STAGECOACH_ASSIGN_OR_RETURN(IterationReport report, passes->run_pass());
    reports.push_back(std::move(report));
  }
  return reports;
}

}  // namespace stagecoach
