#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/bytes.h"
#include "core/dtype.h"
#include "core/status.h"

namespace stagecoach {

/// What to export, and how.
struct ExportOptions {
  std::string checkpoint;      ///< a checkpoint's folder, or a run's: its newest
  std::string out;             ///< folder that is made; may exist if it is empty
  std::optional<DType> dtype;  ///< of all weights; else each as the trained model had it, or fp32
  bool merge_lora = false;     ///< into the weights they adapt
  /// Of a model's weights; else those of WeightFolderOptions.
  std::optional<ByteCount> max_file_bytes;
  /// Hears how many elements of how many are written.
  std::function<void(int64_t done, int64_t total)> progress;
};

/// What an export wrote.
struct ExportReport {
  std::string checkpoint;          ///< folder that was read
  int64_t iteration = 0;           ///< of it
  std::vector<std::string> files;  ///< written, by name
  std::string dtype;               ///< "bfloat16": as config.json says
  ByteCount weight_bytes = 0;
  std::vector<std::string> notes;  ///< what a person should know, a line each
};

/// Writes a checkpoint's weights as a Hugging Face folder, or adapters as PEFT has them, unless
/// they are merged into the base, which is then read where it was: the config.json of the model
/// that was trained with its own fields, weights under the names that it had, and its tokenizer
/// files and generation_config.json. The folder appears when all of it is written; a failure leaves
/// nothing; what an export left that was killed, the next one to the same place removes. Refused:
/// what is no checkpoint, weights that are not those its digest names (data loss), `out` that is
/// not empty, adapters to merge where there are none, numbers that the dtype cannot hold. Cancelled
/// when interrupted (interrupt.h).
Result<ExportReport> export_checkpoint(const ExportOptions& options);

}  // namespace stagecoach
