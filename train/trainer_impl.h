#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/task_pool.h"
#include "hal/host_worker.h"
#include "memory/activation_store.h"
#include "memory/budget.h"
#include "memory/host_state.h"
#include "scheduler/planner.h"
#include "scheduler/run_tuner.h"
#include "scheduler/share_choice.h"
#include "scheduler/stage_executor.h"
#include "train/batch_staging.h"
#include "train/device_updates.h"
#include "train/optimizer.h"
#include "train/predicted_slices.h"
#include "train/trainer.h"
#include "train/trainer_options.h"

namespace stagecoach {

/// Steps are numbered from here on, so that there is a version before the first one's: a run that
/// goes on with `async` computes its first step with it.
inline constexpr int64_t kFirstStep = 1;

/// What a trainer works with: passes and steps in trainer.cpp, plans in trainer_planning.cpp, what
/// it holds and reports in trainer_state.cpp.
struct Trainer::Impl {
  Impl(Network made, std::vector<Device*> used, TrainerOptions chosen, int threads)
      : network(std::move(made)),
        devices(std::move(used)),
        options(std::move(chosen)),
        rule(update_rule(options)),
        moments(moment_options(options)),
        pool(TaskPool::create(threads)),
        worker("host", *pool) {}

  Status build();
  Status prepare_request();
  Result<PlannedRun> make_plan() const;
  Residence residence() const;
  Status check_host(const PlannedRun& run) const;
  Status keep_gradients();
  Pinning pinning() const;
  Status build_state();
  Status fill_constants();
  Status adopt(PlannedRun next);
  Status replan();
  Status choose_share(const PlannedRun& next);
  Result<PlannedRun> plan_with_updates(const ShareChoice& choice);
  double step_update_ns(const StepOutcome& step) const;
  StepSetup used_devices(const PlannedRun& run) const;
  std::vector<TraceSlice> predicted_pass();
  void note_pass(const FinishedPass& pass);
  Status start_pass(const Plan& plan, const BatchStaging& batch, PassInput& pass);
  Status run_inference(const BatchStaging& batch);
  static Result<StepLoss> pass_loss(const BatchStaging& batch, int64_t targets);
  void take_finished();
  bool scales_loss() const { return network.dtype == DType::kF16; }
  Result<double> loss_scale_of_pass();
  void note_step(int64_t start_ns);
  void initialize(int block);
  Status drain();
  UpdateMode update_mode() const { return request.update; }
  BatchStaging& next_staging() {
    return *staging[static_cast<size_t>(passes_loaded++) % staging.size()];
  }

  Network network;
  std::vector<Device*> devices;
  TrainerOptions options;
  UpdateRule rule;
  MomentOptions moments;
  std::unique_ptr<TaskPool> pool;
  MicroBatchShape shape;
  PlanRequest request;
  HostLimits limits;  ///< when the run began
  PlannedRun planned;
  ByteCount host_planned_bytes = 0;      ///< the most with any plan so far
  std::vector<ByteCount> used_before;    ///< per device: what its backend and updates there take
  std::vector<ByteCount> planned_bytes;  ///< per device: the most with any plan so far
  std::optional<RunTuner> tuner;
  std::vector<std::string> notes;
  bool chooses_share = false;                       ///< once layers and updates have been measured
  std::vector<std::vector<ParameterGroup>> groups;  ///< per block, per parameter
  std::shared_ptr<const MappedWeights> base;        ///< outlives the state, which reads it
  std::unique_ptr<HostState> state;
  std::optional<ActivationStore> store;
  /// Passes may be under way at the same time, so batches take turns.
  std::vector<std::unique_ptr<BatchStaging>> staging;
  Trace trace;
  // The worker's jobs and the executor's streams use what is above, so they go first.
  HostWorker worker;
  std::unique_ptr<DeviceUpdates> device_updates;  ///< null: the host updates all
  std::unique_ptr<StageExecutor> executor;

  int64_t iteration = 0;
  LossScales loss_scales;
  std::map<int64_t, double> scale_of_step;  ///< that its passes computed with
  int64_t passes_of_plan = 0;               ///< the rotation continues across them
  std::optional<PredictedPass> last_pass;
  bool gradients_pending = false;
  bool masked_pass_pending = false;  ///< a pass of the next step had no target
  int64_t masked_steps = 0;          ///< skipped for want of targets
  int64_t passes_loaded = 0;
  int64_t steps_asked = kFirstStep;                ///< the number of the next
  std::map<int64_t, size_t> passes_of_step;        ///< begun, by step
  std::map<int64_t, std::vector<double>> bubbles;  ///< of passes that have ended, by step
  std::deque<StepOutcome> ended_steps;             ///< whose passes may not have been reported
  std::vector<StepUpdate> updates;                 ///< that nobody has asked for
  int64_t iteration_began_ns = 0;
  double waited_ns = 0;  ///< devices for updates, in the mean, in passes that ended since a step
  std::vector<double> controller_fractions, exposed_fractions, simulated_bubbles;
  std::vector<double> steps_ns;  ///< whole steps since the plan was adopted
  ByteCount bytes_up = 0, bytes_down = 0;
  int64_t reading_wait_ns = 0;  ///< with plans before this one
};

}  // namespace stagecoach
