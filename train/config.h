#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/bytes.h"
#include "core/dtype.h"
#include "core/json.h"
#include "core/status.h"
#include "model/lora_options.h"

namespace stagecoach {

/// `[model]`
struct ModelConfig {
  std::string path;              ///< Hugging Face folder, config.json or preset
  std::string init = "weights";  ///< "weights" or "random"
  DType dtype = DType::kF32;     ///< of compute copies
  LoraOptions lora;              ///< adapters to begin with; off: none, or those of `lora_path`
  bool names_lora = false;       ///< there is a table `model.lora`, even an empty one
  std::string lora_path;         ///< an adapter's folder to go on from
  /// Where a frozen base is: "memory", or "mapped", straight from its files.
  std::string base = "memory";
};

/// `[data]`
struct DataConfig {
  std::vector<std::string> train;
  std::vector<std::string> validation;
  int64_t sequence = 1024;
  std::string tokenizer = "bytes";
  std::string packing = "auto";  ///< as packing_name has it
  uint64_t seed = 1;
};

/// Of train.router_loss: what the model's config.json says.
inline constexpr double kAutoRouterLoss = -1;

/// `[train]`
struct RunConfig {
  int64_t iterations = 100;
  int64_t epochs = 0;  ///< when > 0, replaces iterations
  int64_t batch = 16;  ///< sequences of one iteration
  int64_t micro_batches = 4;
  int64_t rounds = 1;
  uint64_t seed = 1;
  int64_t eval_every = 0;
  ByteCount eval_tokens = kMiB;
  int64_t log_every = 1;
  std::string deterministic = "auto";
  double loss_scale = 0;  ///< of fp16: where it starts; 0: "auto"
  double z_loss = 0;      ///< times the squared log of the softmax denominator; 0 = off
  double label_smoothing = 0;
  double router_loss = kAutoRouterLoss;  ///< times what balances experts; 0 = off
};

/// `[optimizer]`
struct OptimizerConfig {
  std::string kind = "adamw";
  double lr = 3e-4;
  double momentum = 0.9;  ///< of sgd
  std::string moments = "fp32";
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  std::string no_decay = "norms and biases";
  double clip_norm = 1.0;   ///< 0 = off
  double device_share = 0;  ///< of trained elements: updated on devices; -1: "auto"
  int64_t warmup = 10;
  std::string decay = "cosine";
  double min_lr = 0.1;  ///< fraction of lr
};

/// `[schedule]`
struct ScheduleConfig {
  std::string kind = "roundpipe";
  std::string update = "overlap";
  std::string dispatch =
      "rotation";                ///< "static" binds stages to devices: the baseline to compare with
  int64_t max_stage_layers = 0;  ///< 0: the partitioner decides
};

/// `[devices]`
struct DevicesConfig {
  std::string use = "cpu:4";
  std::string memory = "auto";
  std::string residency = "auto";  ///< or "off": no parameters stay in spare memory
  int64_t timeout_ns = 60'000'000'000;
  std::string profile;  ///< of this machine, by 'bench bandwidth --save-profile'; empty: none
};

/// `[activations]`
struct ActivationsConfig {
  std::string policy = "auto";
};

/// `[output]`
struct OutputConfig {
  std::string dir = "out";
  int64_t save_every = 100;
  int64_t keep_last = 2;
  /// Host memory for what updates would overwrite before it is saved; 0: they wait.
  ByteCount save_copy = 0;
  bool trace = true;
  std::string resume = "auto";  ///< "auto", "never" or a folder
};

/// What to tell of optimizer.moments other than "fp32".
inline constexpr const char* kMomentsChangeNumerics =
    "changes numerics: results differ from those of fp32 moments";

/// A whole training configuration, as `train --config` reads it.
struct TrainConfig {
  ModelConfig model;
  DataConfig data;
  RunConfig train;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  DevicesConfig devices;
  ActivationsConfig activations;
  OutputConfig output;
};

/// Builds a configuration from parsed TOML (may be an empty table) and `key=value` overrides such
/// as "train.batch=32"; values are TOML, or bare words where text is expected. Every key, type and
/// value is checked, and combinations too (batch divisible by micro-batches, micro-batches by
/// rounds); what this version does not have is refused by name. Errors name `source`, the key, the
/// value found and the values allowed; an unknown key names the nearest known one.
Result<TrainConfig> make_train_config(const Json& table, const std::vector<std::string>& overrides,
                                      const std::string& source);

/// The same from TOML text; refusals also name the line of the key.
Result<TrainConfig> parse_train_config(std::string_view text,
                                       const std::vector<std::string>& overrides,
                                       const std::string& source);

/// The configuration as TOML text, every key with its value, and a comment behind what changes
/// numerics; reads back to the same configuration.
std::string train_config_to_toml(const TrainConfig& config);
/// The configuration as JSON, for checkpoints.
Json train_config_to_json(const TrainConfig& config);

}  // namespace stagecoach
