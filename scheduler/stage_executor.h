#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "core/executor.h"
#include "core/status.h"
#include "core/task_pool.h"
#include "core/trace.h"
#include "hal/device.h"
#include "hal/host_queue.h"
#include "memory/activation_store.h"
#include "memory/host_state.h"
#include "scheduler/block_optimizer.h"
#include "scheduler/block_reader.h"
#include "scheduler/consistency.h"
#include "scheduler/device_lane.h"
#include "scheduler/host_updates.h"
#include "scheduler/iteration_report.h"
#include "scheduler/network.h"
#include "scheduler/pass.h"
#include "scheduler/plan.h"
#include "scheduler/pump.h"
#include "scheduler/submitter.h"

namespace stagecoach {

/// What an executor works with; everything must outlive it.
struct StageExecutorSetup {
  const Network* network = nullptr;
  std::vector<Device*> devices;
  HostState* host_state = nullptr;
  ActivationStore* store = nullptr;
  HostQueue* host_worker = nullptr;
  std::vector<HostQueue*> update_queues;  ///< of devices that update blocks, see BlockOptimizer
  std::vector<Stream*> update_streams;    ///< that those updates run on
  MicroBatchShape shape;
  std::vector<ByteCount> arena_bytes;  ///< stage memory, per device
  /// Per device: of that, for parameters that stay between slots; empty: none do.
  std::vector<ByteCount> resident_bytes;
  bool recomputes = true;  ///< whether backwards of bound plans do, see layout_stages
  BulkMethod bulk = BulkMethod::kAlternating;
  std::vector<MeasuredBulk> measured_bulk;  ///< per device; empty: nothing was measured
  UpdateMode update = UpdateMode::kBarrier;
  int64_t first_step = 0;  ///< updates that the host state has had
  int64_t timeout_ns = 60'000'000'000;
  std::vector<int> trace_processes;  ///< per device; empty: its position
  std::vector<Ordering> left_out;    ///< orderings that are not kept: for proofs that they matter
};

/// A pass that has ended.
struct FinishedPass {
  bool inference = false;
  uint32_t iteration = 0;  ///< as it was given
  int64_t step = 0;        ///< whose gradients it made
  const Plan* plan = nullptr;
  IterationReport report;
};

/// Runs plans on devices and updates on the host: uploads stages, runs micro-batches, brings
/// activations and gradients home, adds gradients up and updates blocks, as far as possible at the
/// same time; what may not overlap is said in consistency.h. One controller thread (the caller's,
/// while it is in here) runs a coroutine per device and per block; each device has a submit thread;
/// a pump posts completions.
/// Thread rule: one thread at a time. After a failure every stream is abandoned and only
/// destruction is allowed.
class StageExecutor {
 public:
  /// A hang is declared after this long without progress, or 20 times the longest operation seen,
  /// but never later than the configured timeout.
  static constexpr int64_t kMinHangNs = 10'000'000'000;
  static constexpr int64_t kHangFactor = 20;
  /// Passes under way at a time.
  static constexpr size_t kPassesInFlight = 2;

  static Result<std::unique_ptr<StageExecutor>> create(const StageExecutorSetup& setup);
  /// Abandons what is under way.
  ~StageExecutor();

  /// Starts a pass over a batch by a valid plan for these devices, streamed or bound (see
  /// check_executable), and returns when its outputs have landed. In training, backward may still
  /// be running then. At most kPassesInFlight are under way: earlier ones are awaited first.
  /// `plan`, the memory that `input` names and `trace`, which may be null, must live until it has
  /// ended. Passes without gradients run alone.
  Status start(const Plan& plan, const PassInput& input, Trace* trace);
  /// Begins an update of all trained blocks with the gradients of the training passes since the
  /// last; it goes on while this class is at work. `optimizer` must live until it has ended.
  Status start_step(std::shared_ptr<BlockOptimizer> optimizer);
  /// Returns when `steps` steps, counted from the first of all, have had their verdict.
  Status await_verdicts(int64_t steps);
  /// Returns when at most `passes` passes and `steps` steps are under way.
  Status finish(size_t passes, size_t steps);
  /// Begins to read all blocks as the last step that was asked for leaves them; it goes on while
  /// this class is at work, beside later passes and steps. One at a time; its queues must end their
  /// jobs before the reader is destroyed.
  Status start_reading(std::shared_ptr<BlockReader> reader);
  bool is_reading() const { return reading_ != nullptr; }
  /// Returns when all has been read; the reader's queue may still be at `finish`. After a failure,
  /// which ends passes and updates, too, unless what was to be read has not been made: the failure.
  Status finish_reading();
  /// For how long updates have waited for readers so far.
  int64_t reading_wait_ns() const { return consistency_.reading_wait_ns(); }
  /// Whether nothing is under way, be it because something failed.
  bool is_idle() const { return !failure_.is_ok() || (passes_.empty() && steps_.empty()); }
  /// start and the end of everything: one report.
  Result<IterationReport> run(const Plan& plan, const PassInput& input, Trace* trace);

  /// What has ended since the last call, in order.
  std::vector<FinishedPass> take_passes() { return std::exchange(finished_passes_, {}); }
  std::vector<StepOutcome> take_steps() { return std::exchange(finished_steps_, {}); }

  /// Pinned memory of all devices through which pageable state travels.
  ByteCount ring_bytes() const;

 private:
  struct Step;
  explicit StageExecutor(const StageExecutorSetup& setup);

  Result<std::shared_ptr<Pass>> make_pass(const Plan& plan, const PassInput& input);
  void lease_blocks(const Pass& pass);
  Task<Status> run_pass(std::shared_ptr<Pass> pass);
  Task<Status> run_device(std::shared_ptr<Pass> pass, int device);
  Task<Status> upload_slots(Pass& pass, int device, std::vector<Latch>& uploaded,
                            std::vector<Latch>& submitted);
  Task<Status> end_leases(Pass& pass, std::vector<int> blocks, Timepoint landed);
  Task<Status> await_version(Pass& pass, int device, const Slot& slot,
                             const std::vector<int>& blocks);
  Task<Status> run_actions(Pass& pass, int device, std::vector<Latch>& uploaded,
                           std::vector<Latch>& submitted);
  Task<Status> run_action(Pass& pass, int device, int slot, int action);
  Task<Status> await_storage(Pass& pass, int round, const StageLayout& layout);
  void publish_results(Pass& pass, const DeviceLane& lane, int slot, int action);
  Task<Status> await_cell(Cell& cell, Device& device);
  Task<Status> await_outputs(std::shared_ptr<Pass> pass);
  Task<Status> await_few(size_t passes, size_t steps);
  Task<Status> await_judged(int64_t steps);
  Task<Status> collect_gradients(std::shared_ptr<Pass> pass, int block);
  Task<Status> run_step(std::shared_ptr<Step> step);
  /// A reader at work.
  struct Reading {
    std::shared_ptr<BlockReader> reader;
    int64_t version = 0;
    int next_block = 0;              ///< being read or the next; the last one first
    std::optional<Timepoint> piece;  ///< the last that was asked for
    /// Of blocks that are copied; they end their reading when they have been.
    std::map<int, Timepoint> copies;
    std::set<int> copied;  ///< further pieces are read from the copy
  };
  Task<Status> run_reading(std::shared_ptr<Reading> reading);
  Task<Status> read_block(std::shared_ptr<Reading> reading, int block);
  Task<Status> copy_for_reader(int block, int64_t version);
  static Result<Timepoint> submit_piece(Reading& reading, int block, int piece);
  static Status submit_finish(BlockReader& reader);
  Task<Status> await_reading();
  Status read_rest();
  Status report(Pass& pass);
  double update_wait_ns(const Pass& pass, const IterationReport& report);
  void fail(const Status& status);
  Status run_on_controller(Task<Status> task);
  /// Makes the next thing happen; nothing left is a deadlock, which fails the pass.
  bool advance_virtual_time();

  StageExecutorSetup setup_;
  Executor executor_;
  VirtualTime* virtual_time_ = nullptr;  ///< of simulated devices; else null
  bool is_deadlocked_ = false;
  Status failure_;  ///< the first
  std::unique_ptr<Pump> pump_;
  std::vector<std::unique_ptr<DeviceLane>> lanes_;
  std::vector<std::unique_ptr<Submitter>> submitters_;
  Consistency consistency_;
  HostUpdates updates_;
  TaskGroup background_;                      ///< passes and steps
  Signal ended_;                              ///< a pass or a step has
  std::deque<std::shared_ptr<Pass>> passes_;  ///< under way, the oldest first
  std::deque<std::shared_ptr<Step>> steps_;
  std::vector<std::shared_ptr<Pass>> passes_of_step_;  ///< of the step that has not been asked for
  std::vector<FinishedPass> finished_passes_;
  std::vector<StepOutcome> finished_steps_;
  int64_t pass_count_ = 0;
  std::shared_ptr<Reading> reading_;  ///< null: nobody reads
  int64_t step_count_ = 0;            ///< asked for
  int64_t judged_count_ = 0;          ///< whose verdict is there
  int64_t longest_operation_ns_ = 0;
  std::vector<int64_t> idle_since_ns_;  ///< per device: the end of the last pass's computing
};

}  // namespace stagecoach
