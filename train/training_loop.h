#pragma once

#include <cstdint>
#include <functional>

#include "core/json.h"
#include "core/status.h"
#include "hal/backend_registry.h"
#include "train/config.h"

namespace stagecoach {

/// How a run is shown and how far it goes.
struct LoopOptions {
  bool json_lines = false;  ///< metrics as JSON lines on stdout
  bool dry_run = false;     ///< check everything, plan, write nothing
  /// Set when the devices are checked for races: how many there were, for the summary's `races`.
  std::function<int64_t()> race_count;
};

/// How a run ended when nothing failed.
enum class TrainingEnd {
  kFinished,         ///< all iterations done; summary.json is written
  kAlreadyFinished,  ///< the output folder holds a finished run; nothing was done
  kInterrupted,      ///< a signal came; a checkpoint is saved when there was anything to save
  kDryRun,           ///< everything was checked; nothing was written
};

/// Outcome of `run_training`.
struct TrainingOutcome {
  TrainingEnd end = TrainingEnd::kFinished;
  Json summary;  ///< what summary.json holds; for kDryRun what was planned
};

/// Trains as `config` says, from data on disk to checkpoints, metrics and summary in output.dir.
/// Everything that can be known beforehand (model, data, output folder, disk space, devices, device
/// memory) is checked before anything is written there. Errors: data loss for a loss or gradient
/// that is not finite, naming the iteration; io for what could not be written, the previous
/// checkpoint being intact; whatever devices report. Thread rule: one run at a time.
Result<TrainingOutcome> run_training(const TrainConfig& config, const LoopOptions& options,
                                     const BackendRegistry& backends);

}  // namespace stagecoach
