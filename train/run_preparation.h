#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "train/batch_sampler.h"
#include "train/checkpoint.h"
#include "train/data.h"
#include "train/model_session.h"
#include "train/progress.h"
#include "train/token_windows.h"

namespace stagecoach {

/// Everything a run needs before its first iteration.
struct PreparedRun {
  TrainConfig config;  ///< with the packing that data.train settles
  TokenData train_data;
  TokenData validation_data;  ///< empty when none is configured
  std::optional<TokenWindows> train_windows, validation_windows;
  std::unique_ptr<BatchSampler> sampler;
  int64_t iterations = 0;  ///< of the whole run
  std::optional<FoundCheckpoint> resume_from;
  Json model_json;
  Json adapter_json;        ///< adapter_config.json, where adapters are trained; else null
  std::string base_sha256;  ///< of their base
  ModelSession session;
  bool is_already_finished = false;  ///< the folder holds this very run, done; no session then
};

/// Checks everything that can be known before training and builds the trainer, without writing to
/// the output folder. Parameters are not filled yet. Errors as `run_training` says, and cancelled
/// when a signal came while host memory was being pinned.
Result<std::unique_ptr<PreparedRun>> prepare_run(const TrainConfig& config,
                                                 const BackendRegistry& backends,
                                                 Progress& progress);

}  // namespace stagecoach
