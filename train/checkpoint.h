#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/bytes.h"
#include "core/json.h"
#include "core/status.h"
#include "model/model_source.h"
#include "train/config.h"
#include "train/state_writer.h"
#include "train/trainer.h"

namespace stagecoach {

/// What a checkpoint says of the run that wrote it: trainer_state.json.
///
/// A checkpoint is a folder RUN/checkpoint-<iteration>: config.json and model.safetensors (fp32,
/// names of Hugging Face, so that it is a MODEL for every command; of runs that train adapters
/// adapter_config.json and adapter_model.safetensors, as PEFT has them), optimizer.safetensors
/// (moments that the optimizer keeps), of `async` previous.safetensors (what devices read of the
/// weights before those) and trainer_state.json. RUN/checkpoint is a link to the newest.
struct CheckpointRecord {
  int64_t iteration = 0;  ///< updates done
  Json config;            ///< the training configuration
  Json model;             ///< the model's config.json
  std::string data_digest;
  std::string tokenizer;  ///< "bytes", sha256 of a tokenizer.json or "unknown"; see model_tokenizer
  int64_t targets = 0;    ///< trained on so far
  std::string weights_sha256;
  std::string moments_sha256;
  std::string previous_sha256;  ///< empty: not kept
  double loss_first = 0;
  double loss_last = 0;
  LossScale loss_scale;            ///< of fp16
  double previous_loss_scale = 0;  ///< of fp16: before the last step
  Json adapter;                    ///< adapter_config.json, of runs that train adapters; else null
  std::string base_sha256;         ///< of their base, see base_sha256()
};

/// A whole checkpoint on disk.
struct FoundCheckpoint {
  std::string path;
  CheckpointRecord record;
};

/// Bytes a checkpoint of this run takes, rounded up generously.
ByteCount checkpoint_bytes(const Trainer& trainer);

/// Ok when the file system of `folder` (which need not exist yet) has room for `needed` bytes; else
/// an io failure that names both and what to do.
Status check_free_space(const std::string& folder, ByteCount needed);

/// Ok when nothing but checkpoints lies where those of iterations `first` to `last` will be saved;
/// else an io failure that names it. Ones that are damaged will be replaced.
Status check_checkpoint_places(const std::string& run_folder, int64_t first, int64_t last);

/// A checkpoint that is written while training goes on, see StateWriter. A crash at any moment
/// leaves the previous one whole: everything is written and synchronised in a temporary folder that
/// is renamed last.
class CheckpointSave {
 public:
  /// Begins RUN/checkpoint-<iteration>, of the last step that `trainer` was asked for, which must
  /// outlive this. With `copies` updates need not wait where there is room (output.save_copy).
  /// Errors: io, naming the file, bytes needed and free; what stopped `trainer`.
  static Result<std::unique_ptr<CheckpointSave>> begin(const std::string& run_folder,
                                                       CheckpointRecord record, Trainer& trainer,
                                                       SaveCopies copies = nullptr);
  /// Removes what has been written, unless it was published.
  ~CheckpointSave();

  int64_t iteration() const { return record_.iteration; }
  ByteCount size_bytes() const { return needed_; }
  /// What has been copied for it so far.
  ByteCount copied_bytes() const { return writer_ ? writer_->copied_bytes() : copied_bytes_; }
  /// Whether publish() need not wait.
  bool is_done() const;
  /// Returns when all is written: makes RUN/checkpoint point to it and deletes all but the
  /// `keep_last` newest. Errors as of `begin`.
  Status publish(int64_t keep_last);

 private:
  CheckpointSave(std::string run_folder, CheckpointRecord record, Trainer& trainer);
  Status write();
  std::string run_folder_, unfinished_;
  CheckpointRecord record_;
  Trainer& trainer_;
  ByteCount needed_ = 0, copied_bytes_ = 0;
  std::shared_ptr<StateWriter> writer_;  ///< null: the folder holds this iteration already
};

/// Both at once. Does nothing when the folder already holds this iteration.
Status save_checkpoint(const std::string& run_folder, const CheckpointRecord& record,
                       Trainer& trainer, int64_t keep_last);

/// The newest whole checkpoint in `folder`: a run's folder, or itself a checkpoint. Nothing when
/// there is none. Damaged ones are skipped for an older whole one; `notes` receives a line for
/// each. Data loss when there are checkpoints but none is whole.
Result<std::optional<FoundCheckpoint>> find_checkpoint(const std::string& folder,
                                                       std::vector<std::string>* notes);

/// Deletes what interrupted saves and writes left behind in `run_folder`.
void remove_unfinished_checkpoints(const std::string& run_folder);

/// Fills parameters (of adapters alone, where there are any), moments, loss scale and iteration of
/// `trainer`, which has made no step; with `async` the weights before the newest too, which are
/// those where the checkpoint has no others. Data loss when they are not those that the record's
/// digests name.
Status load_checkpoint(const FoundCheckpoint& checkpoint, Trainer& trainer);

/// Ok when a run that writes records like `here` has the adapters and the base of the checkpoint;
/// else an invalid argument that names what differs. Where the base lies does not matter.
Status check_same_base(const FoundCheckpoint& checkpoint, const CheckpointRecord& here);

/// Ok when `base`, as it is now, is the one that the adapters of the checkpoint in `folder` were
/// trained on; else data loss. A folder of adapters that is no checkpoint says nothing of its base.
Status check_base_of_adapters(const std::string& folder, const ModelSource& base);

/// Ok when a run of `config` on this model and data continues the checkpoint; else an invalid
/// argument that names the first difference of model, data, tokenizer, batch and optimizer.
/// `notes` receives differences that are allowed but change bits, and what the checkpoint lacks.
Status check_resumable(const FoundCheckpoint& checkpoint, const TrainConfig& config,
                       const Json& model, const std::string& data_digest,
                       std::vector<std::string>* notes);

}  // namespace stagecoach
