#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "core/status.h"
#include "memory/host_limits.h"
#include "memory/moments.h"
#include "tools/command.h"
#include "tools/planned_model.h"

namespace stagecoach {

/// What commands that plan ask of a model and its step alike.
struct ModelOptions {
  /// Of numbers that were not given; not a value one would give.
  static constexpr int64_t kUnset = std::numeric_limits<int64_t>::min();

  std::string model, update = "overlap", dtype, base = "memory", host_memory, optimizer = "adamw",
                     moments = "fp32";
  bool lora_experts = false;
  double clip_norm = 1;     ///< 0: off
  double device_share = 0;  ///< of commands that take --device-share; kAutoShare: as is measured
  int64_t batch = 16, micro_batches = 4, rounds = 1, sequence = kUnset, lora_rank = kUnset;

  MicroBatchShape shape(int64_t tokens) const { return {batch / micro_batches, tokens}; }
};

/// The options but MODEL itself, bound to `options`.
std::vector<CommandOption> model_command_options(ModelOptions& options);

/// Options of what is updated and when, as of the keys of `train`.
std::vector<CommandOption> optimizer_command_options(ModelOptions& options);

/// Refuses numbers outside their range and those that do not divide each other.
Status check_model_options(const ModelOptions& options);

/// What the optimizer of checked options keeps.
MomentOptions asked_moments(const ModelOptions& options);
/// Whether its updates wait for the norm of all gradients.
bool asked_to_wait_for_norm(const ModelOptions& options, DType dtype);

/// The model with these options, which were checked. Errors: those of resolve_planned_model.
Result<PlannedModel> resolve_asked_model(const ModelOptions& options);

/// What the host has: --host-memory where it is given, else what this machine leaves a program now.
/// Errors: invalid argument for a size that is none; those of read_host_limits.
Result<HostLimits> host_limits_for(const ModelOptions& options);

/// What to change where the host has too little, in words of these options.
inline constexpr const char* kModelAdvice =
    "Use fewer or smaller micro-batches (--microbatches, --batch, --sequence), adapters "
    "(--lora-rank, with --base mapped) or a 16-bit --dtype";

}  // namespace stagecoach
