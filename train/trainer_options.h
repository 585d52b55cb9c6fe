#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "memory/host_limits.h"
#include "memory/registered_memory.h"
#include "scheduler/consistency.h"
#include "scheduler/measured_bulk.h"
#include "train/loss_scale.h"
#include "train/update_kernel.h"

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
  double z_loss = 0;                 ///< LossTerms of training, never of evaluation
  double label_smoothing = 0;
  /// Of trained elements, 0 to 1: updated on devices, in whole blocks; kAutoShare: as is measured.
  double device_share = 0;
  double loss_scale = kInitialLossScale;  ///< of fp16: where it starts
  int64_t timeout_ns = 60'000'000'000;    ///< no progress for this long ends the run
  int host_threads = 0;                   ///< 0: all usable
  bool trace = false;
  ByteCount save_copy_bytes = 0;  ///< host memory for copies while saving, to be counted
  /// Whether the first passes time layers and the stages are planned anew by that. Steps do not
  /// overlap while they do.
  bool times_layers = true;
  /// Of host memory: makes host work take as long as it would at this rate, as paced devices do,
  /// for measurements; 0: as fast as it is.
  double host_bytes_per_s = 0;
  /// What the host has when the trainer is created; others than this machine's are for tests.
  std::function<Result<HostLimits>()> host_limits = read_host_limits_before_threads;
  /// Told how far the pinning of the training state is; false ends it, and the trainer's creation
  /// with "cancelled". Any thread, one at a time.
  PinWatch pin_watch;
  /// How parameters and gradients travel beside activations; changes no bit.
  BulkMethod bulk = BulkMethod::kAlternating;
  /// Per device, by a machine profile; empty: nothing was measured. Changes no bit either.
  std::vector<MeasuredLinks> measured;
  /// Orderings that are not kept: for proofs that they matter (docs/consistency.md).
  std::vector<Ordering> left_out;
};

/// Most tokens of an iteration. Beyond it, sizes of activations would no longer be numbers of 63
/// bits.
inline constexpr int64_t kMostTokens = int64_t{1} << 36;

/// Refuses options that contradict each other, what this version does not have, and `devices` that
/// the schedule cannot use. Pure.
Status check_trainer_options(const TrainerOptions& options, size_t devices);

/// Most of optimizer.clip_norm: far beyond what any norm is.
inline constexpr double kMostClipNorm = 1e9;

/// Most of train.z_loss; what is published is 1e-4 and less.
inline constexpr double kMostZLoss = 1;

/// Refuses what this version's optimizers do not do. Pure.
Status check_optimizer(const TrainerOptions& options);

/// Whether devices can make the updates of this optimizer (device_share). Pure.
bool devices_can_update(const TrainerOptions& options);
/// Whether updates wait for the norm of all gradients, be it for clipping or for a loss scale.
bool updates_wait_for_norm(const TrainerOptions& options, DType dtype);
/// How the optimizer of checked options updates.
UpdateRule update_rule(const TrainerOptions& options);
/// The moments it keeps.
MomentOptions moment_options(const TrainerOptions& options);
/// The numbers of its update number `step`, from 1, that all parameters share.
UpdateNumbers common_update_numbers(const TrainerOptions& options, int64_t step);

}  // namespace stagecoach
