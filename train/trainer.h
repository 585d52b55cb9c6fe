#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "core/trace.h"
#include "hal/device.h"
#include "memory/host_limits.h"
#include "memory/host_state.h"
#include "scheduler/bulk_lane.h"
#include "scheduler/consistency.h"
#include "scheduler/device_planner.h"
#include "scheduler/layer_timing.h"
#include "scheduler/network.h"
#include "scheduler/plan.h"
#include "train/host_tensor.h"
#include "train/loss_scale.h"
#include "train/step_optimizer.h"
#include "train/trainer_report.h"

namespace stagecoach {

/// Schedules this version trains by, the default first. roundpipe and single stream their stages;
/// the others bind them to devices.
const std::vector<std::string_view>& trained_schedules();
/// Whether stages of `schedule` stay on their devices.
bool binds_stages(std::string_view schedule);

/// Optimizers, the default first.
const std::vector<std::string_view>& optimizer_kinds();

inline constexpr double kAutoShare = -1;

/// How to train. Plain data; `Trainer::create` checks it.
struct TrainerOptions {
  std::string schedule = "roundpipe";  ///< one of trained_schedules()
  std::string dispatch = "rotation";   ///< "rotation" or "static", where stages are streamed
  std::string update = "overlap";      ///< "barrier", "overlap" or "async"
  int64_t batch = 16;                  ///< sequences of one forward_backward
  int64_t sequence = 1024;             ///< tokens of one sequence
  int64_t micro_batches = 4;           ///< divides batch
  int64_t rounds = 1;                  ///< divides micro_batches
  std::string activations = "auto";    ///< "auto", "recompute" or, where stages are bound, "keep"
  int64_t max_stage_layers = 0;        ///< where stages are streamed; 0: the partitioner decides
  /// "auto": memory that is spare on devices keeps parameters of streamed stages between slots;
  /// changes no bit. "off": every slot uploads its own.
  std::string residency = "auto";
  uint64_t seed = 1;
  std::string optimizer = "adamw";   ///< one of optimizer_kinds()
  double beta1 = 0.9, beta2 = 0.95;  ///< of adamw, adam and lion
  double epsilon = 1e-8;             ///< of adamw and adam
  std::string moments = "fp32";      ///< "bf16" and "8bit" take less memory and change numerics
  double momentum = 0.9;             ///< of sgd; 0: none, and no memory for it
  double weight_decay = 0.1;         ///< of parameters with `decay`
  double clip_norm = 1.0;            ///< 0 = off
  /// Of trained elements, 0 to 1: updated on devices, in whole blocks; kAutoShare: as is measured.
  double device_share = 0;
  double loss_scale = kInitialLossScale;  ///< of fp16: where it starts
  int64_t timeout_ns = 60'000'000'000;    ///< no progress for this long ends the run
  int host_threads = 0;                   ///< 0: all usable
  bool trace = false;
  /// Whether the first passes time layers and the stages are planned anew by that. Steps do not
  /// overlap while they do.
  bool times_layers = true;
  /// Of host memory: makes host work take as long as it would at this rate, as paced devices do,
  /// for measurements; 0: as fast as it is.
  double host_bytes_per_s = 0;
  /// What the host has when the trainer is created; others than this machine's are for tests.
  std::function<Result<HostLimits>()> host_limits = read_host_limits;
  /// Told how far the pinning of the training state is; false ends it, and the trainer's creation
  /// with "cancelled". Any thread, one at a time.
  PinWatch pin_watch;
  /// How parameters and gradients travel beside activations; changes no bit.
  BulkMethod bulk = BulkMethod::kAlternating;
  /// Orderings that are not kept: for proofs that they matter (docs/consistency.md).
  std::vector<Ordering> left_out;
};

/// How the loss of one pass counts.
struct LossOptions {
  /// Targets of the whole step when it is made of several passes, so that each target weighs the
  /// same whatever the batching; 0: this pass is the whole step.
  int64_t step_targets = 0;
};

/// Result of one forward and backward pass.
struct StepLoss {
  double loss = 0;      ///< mean over targets, nats
  int64_t targets = 0;  ///< labels that counted
};

/// One optimizer step that has ended.
struct StepUpdate {
  int64_t iteration = 0;     ///< from 1
  double gradient_norm = 0;  ///< before clipping
  double bubble = 0;         ///< idle share of the compute lanes in its passes
  double loss_scale = 1;     ///< that this step computed with
  bool skipped = false;      ///< gradients were not finite at that scale: nothing is updated
};

/// Trains a network whose state lives in host memory, on any number of devices. The loop is the
/// caller's:
///
///   auto trainer = Trainer::create(std::move(network), devices, options);
///   for (…) { trainer->forward_backward(inputs, labels); trainer->step(learning_rate); }
///   trainer->synchronize();
///
/// With `barrier` a step has ended when `step` returns. With `overlap`, the default, updates run
/// beside the rest of the backward and the next forward, of which every layer waits for its own:
/// the same losses and weights, bit for bit. With `async` iteration T + 1 computes with what
/// iteration T - 1 made, and nothing waits (RoundPipe, arXiv 2604.27085).
///
/// Thread rule: one thread at a time. After a failure only destruction is allowed.
class Trainer {
 public:
  /// `devices` must outlive the trainer. Checks options, memory on every device (naming layer,
  /// bytes and what to set when it does not fit) and allocates everything.
  static Result<std::unique_ptr<Trainer>> create(Network network, std::vector<Device*> devices,
                                                 TrainerOptions options);
  ~Trainer();

  const Network& network() const;
  /// Draws every parameter from its initializer, keyed by (seed, parameter name).
  void initialize_parameters();
  /// Copies fp32 parameters of a block from element `offset` on; call synchronize() before this and
  /// what follows up to write_moment.
  void read_parameters(int block, int64_t offset, std::span<float> out) const;
  /// Sets them and what devices read. Invalid argument when one is not finite.
  Status write_parameters(int block, int64_t offset, std::span<const float> values);
  /// What is kept of moments.
  const MomentOptions& moments() const;
  /// Copies one that is kept of a block that is not frozen, likewise.
  void read_moment(Moment moment, int block, int64_t offset, std::span<float> out) const;
  /// `count` elements of it as they are kept, to be read or written.
  MomentView moment(Moment moment, int block, int64_t offset, int64_t count);
  /// Whether the next pass computes with weights before the newest, which are kept too: `async`.
  bool keeps_previous() const;
  /// What devices read of those of a block that is not frozen, in the network's dtype: `count`
  /// elements from `offset` on. As the newest until a step has been made or they are set.
  std::span<const std::byte> previous_copy(int block, int64_t offset, int64_t count) const;
  void write_previous_copy(int block, int64_t offset, std::span<const std::byte> values);

  /// Groups override decay and learning rate: `matches` are suffixes of parameter names.
  Status set_parameter_group(const std::vector<std::string>& name_suffixes, ParameterGroup group);

  /// Forward and backward of one batch, split into micro-batches along the first dimension;
  /// gradients add up until `step`. inputs [batch, sequence, …], labels likewise; label -1 is
  /// ignored. The loss is the sum over targets divided by their number (see LossOptions). Returns
  /// when the loss is known; unless updates are `barrier`, backward may still be running. Errors:
  /// invalid argument for shapes; whatever a device reports, naming device, verb and label, in this
  /// pass or in what was still running of earlier ones.
  Result<StepLoss> forward_backward(const HostTensor& inputs, const HostTensor& labels,
                                    const LossOptions& loss = {});
  /// One optimizer update with the gathered gradients: made before this returns with `barrier`,
  /// else begun. Data loss, here or in a later call, when their norm is not finite, with nothing
  /// updated where clipping waits for it, or when a parameter or moment would not be. In fp16
  /// gradients that are not finite are skipped while the loss scale can become smaller: `iteration`
  /// goes on, the optimizer's own count of updates, its parameters and its moments do not. A pass
  /// computes with the scale that the step before it left, with `async` the one before that.
  Status step(double learning_rate);
  /// Returns when everything has ended: parameters and moments on the host are final.
  Status synchronize();
  /// Steps that have ended since the last call, in order.
  std::vector<StepUpdate> take_updates();

  /// Loss without gradients or dropout. A batch of fewer sequences than options.batch is allowed
  /// for integer labels.
  Result<StepLoss> evaluate(const HostTensor& inputs, const HostTensor& labels);
  /// Output of the last layer, rows x columns fp32 (for networks that end in logits).
  Result<std::vector<float>> forward(const HostTensor& inputs);

  /// Steps done so far, skipped ones among them; keys the random numbers, so a resumed run sets it.
  int64_t iteration() const;
  void set_iteration(int64_t iteration);

  /// Of fp16; a resumed run sets it.
  const LossScale& loss_scale() const;
  /// The factor before the last step, which `async` computes the next pass with.
  double previous_loss_scale() const;
  void set_loss_scale(const LossScale& scale, double previous_value);

  const Plan& plan() const;
  TrainerReport report() const;
  /// Layers and devices as the first iterations measured them; null before their end.
  const MeasuredRun* measured() const;
  /// Lines for people about plans made and devices left out since the last call.
  std::vector<std::string> take_notes();
  /// Slices recorded so far; empty unless options.trace. Where steps are predicted, processes
  /// called "predicted DEVICE" show the last pass as it was predicted.
  const Trace& trace();
  /// sha256 of the fp32 optimizer copies in block order, without alignment gaps.
  std::string weights_sha256() const;

 private:
  struct Impl;
  explicit Trainer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace stagecoach
