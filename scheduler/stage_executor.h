#pragma once

#include <memory>
#include <vector>

#include "core/executor.h"
#include "core/status.h"
#include "core/task_pool.h"
#include "core/trace.h"
#include "hal/device.h"
#include "hal/host_queue.h"
#include "memory/activation_store.h"
#include "memory/host_state.h"
#include "scheduler/device_lane.h"
#include "scheduler/iteration_report.h"
#include "scheduler/network.h"
#include "scheduler/plan.h"
#include "scheduler/pump.h"

namespace stagecoach {

/// What an executor works with; everything must outlive it.
struct StageExecutorSetup {
  const Network* network = nullptr;
  std::vector<Device*> devices;
  HostState* host_state = nullptr;
  ActivationStore* store = nullptr;
  HostQueue* host_worker = nullptr;
  MicroBatchShape shape;
  std::vector<ByteCount> arena_bytes;  ///< stage memory, per device
  bool recomputes = true;              ///< whether backwards of bound plans do, see layout_stages
  BulkMethod bulk = BulkMethod::kAlternating;
  int64_t timeout_ns = 60'000'000'000;
  std::vector<int> trace_processes;  ///< per device; empty: its position
};

/// Runs plans on devices: uploads stages, runs micro-batches, brings activations and gradients home
/// and adds gradients up on the host. One controller thread (the caller's) runs a coroutine per
/// device and per block; each device has a submit thread; a pump posts completions. Thread rule:
/// one thread at a time. After a failure every stream is abandoned and only destruction is allowed.
class StageExecutor {
 public:
  /// A hang is declared after this long without progress, or 20 times the longest operation seen,
  /// but never later than the configured timeout.
  static constexpr int64_t kMinHangNs = 10'000'000'000;
  static constexpr int64_t kHangFactor = 20;

  static Result<std::unique_ptr<StageExecutor>> create(const StageExecutorSetup& setup);
  ~StageExecutor();

  /// One pass over a batch by a valid plan for these devices, streamed or bound (see
  /// check_executable). Returns when outputs have landed and, in training, gradients have been
  /// added up in the host state. `trace` may be null.
  Result<IterationReport> run(const Plan& plan, const PassInput& input, Trace* trace);

 private:
  struct Cell;
  struct Cells;
  explicit StageExecutor(const StageExecutorSetup& setup);

  Status begin_pass(const Plan& plan, const PassInput& input);
  Task<Status> run_pass();
  Task<Status> run_device(int device);
  Task<Status> run_action(int device, int slot, int action);
  Task<Status> await_cell(Cell& cell, Device& device);
  Task<Status> collect_gradients(int block);
  void fail(const Status& status);
  /// Makes the next thing happen; nothing left is a deadlock, which fails the pass.
  bool advance_virtual_time();

  StageExecutorSetup setup_;
  Executor executor_;
  VirtualTime* virtual_time_ = nullptr;  ///< of simulated devices; else null
  bool is_deadlocked_ = false;
  std::unique_ptr<Pump> pump_;
  std::vector<std::unique_ptr<DeviceLane>> lanes_;
  std::vector<std::unique_ptr<Submitter>> submitters_;
  PlanContext context_;
  std::unique_ptr<Cells> cells_;
  int64_t longest_operation_ns_ = 0;
};

}  // namespace stagecoach
