#include "tools/model_options.h"

#include <fmt/format.h>
#include <utility>

#include "train/trainer_options.h"

namespace stagecoach {

std::vector<CommandOption> model_command_options(ModelOptions& options) {
  return {{"--update", "MODE", "barrier, overlap (default) or async", &options.update},
          {"--batch", "B", "sequences of an iteration (16)", &options.batch},
          {"--microbatches", "M", "micro-batches of an iteration (4)", &options.micro_batches},
          {"--rounds", "R", "rounds of an iteration (1)", &options.rounds},
          {"--sequence", "T", "tokens of a sequence (the model's positions, at most 1024)",
           &options.sequence},
          {"--dtype", "D", "fp32 (default of GPT-2), bf16 (of the others) or fp16", &options.dtype},
          {"--lora-rank", "R",
           "train adapters of this rank alone: of attention and MLP, beside experts of attention",
           &options.lora_rank},
          {"--lora-experts", "", "count adapters of router and experts too: planned, not trained",
           &options.lora_experts},
          {"--base", "WHERE", "of what is frozen: memory (default), or mapped from its files",
           &options.base}};
}

std::vector<CommandOption> optimizer_command_options(ModelOptions& options) {
  return {{"--optimizer", "KIND", "adamw (default), adam, sgd (with momentum) or lion",
           &options.optimizer},
          {"--moments", "FORMAT", "fp32 (default), bf16 or 8bit", &options.moments},
          {"--clip-norm", "C", "most of the norm of all gradients (1); 0: no clipping",
           &options.clip_norm}};
}

namespace {

TrainerOptions as_trained(const ModelOptions& options) {
  TrainerOptions trained;
  trained.optimizer = options.optimizer;
  trained.moments = options.moments;
  trained.clip_norm = options.clip_norm;
  trained.device_share = options.device_share;
  return trained;
}

}  // namespace

MomentOptions asked_moments(const ModelOptions& options) {
  return moment_options(as_trained(options));
}

bool asked_to_wait_for_norm(const ModelOptions& options, DType dtype) {
  return updates_wait_for_norm(as_trained(options), dtype);
}

Status check_model_options(const ModelOptions& options) {
  const std::pair<const char*, int64_t> counts[] = {{"--batch", options.batch},
                                                    {"--microbatches", options.micro_batches},
                                                    {"--rounds", options.rounds}};
  const std::pair<const char*, int64_t> given[] = {{"--sequence", options.sequence},
                                                   {"--lora-rank", options.lora_rank}};
  for (const auto& [name, value] : given) {
    if (value == ModelOptions::kUnset || value >= 1) continue;
    return invalid_argument(fmt::format("{} is {}; it must be at least 1", name, value));
  }
  for (const auto& [name, value] : counts) {
    constexpr int64_t kMost = 1'000'000;
    if (value >= 1 && value <= kMost) continue;
    return invalid_argument(fmt::format("{} is {}; it must be from 1 to {}", name, value, kMost));
  }
  if (options.base != "memory" && options.base != "mapped") {
    return invalid_argument(
        fmt::format("--base is '{}'; it must be memory or mapped", options.base));
  }
  if (options.sequence != ModelOptions::kUnset && options.batch > kMostTokens / options.sequence) {
    return invalid_argument(fmt::format("--batch {} of --sequence {} is more than {} tokens",
                                        options.batch, options.sequence, kMostTokens));
  }
  STAGECOACH_RETURN_IF_ERROR(check_optimizer(as_trained(options)));
  if (!(options.clip_norm >= 0 && options.clip_norm <= kMostClipNorm)) {
    return invalid_argument(fmt::format("--clip-norm is {}; it must be from 0 to {}",
                                        options.clip_norm, kMostClipNorm));
  }
  if (options.batch % options.micro_batches != 0) {
    return invalid_argument(fmt::format("--microbatches is {}; it must divide --batch, {}",
                                        options.micro_batches, options.batch));
  }
  if (options.micro_batches % options.rounds == 0) return Status::ok();
  return invalid_argument(fmt::format("--rounds is {}; it must divide --microbatches, {}",
                                      options.rounds, options.micro_batches));
}

Result<PlannedModel> resolve_asked_model(const ModelOptions& options) {
  auto or_default = [](int64_t value) { return value == ModelOptions::kUnset ? 0 : value; };
  PlannedModelOptions planned;
  planned.model = options.model;
  planned.dtype = options.dtype;
  planned.sequence = or_default(options.sequence);
  planned.sequences = options.batch / options.micro_batches;
  planned.lora_rank = or_default(options.lora_rank);
  planned.maps_base = options.base == "mapped";
  planned.adapts_experts = options.lora_experts;
  return resolve_planned_model(planned);
}

Result<HostLimits> host_limits_for(const ModelOptions& options) {
  if (options.host_memory.empty()) return read_host_limits_before_threads();
  Result<ByteCount> bytes = parse_bytes(options.host_memory);
  if (!bytes.is_ok()) return bytes.status().with_context("--host-memory");
  if (*bytes <= 0) return invalid_argument("--host-memory is 0; it must be above 0");
  return HostLimits{*bytes, "--host-memory", {}};
}

}  // namespace stagecoach
