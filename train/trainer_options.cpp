#include "train/trainer_options.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/suggest.h"

namespace stagecoach {

const std::vector<std::string_view>& optimizer_kinds() {
  static const std::vector<std::string_view> names = {"adamw", "adam", "sgd", "lion"};
  return names;
}

const std::vector<std::string_view>& trained_schedules() {
  static const std::vector<std::string_view> names = {"roundpipe",   "single",     "gpipe", "1f1b",
                                                      "interleaved", "looped-bfs", "zb-h1", "zb-v"};
  return names;
}

bool binds_stages(std::string_view schedule) {
  return schedule != "roundpipe" && schedule != "single";
}

namespace {

Status check_schedule(const TrainerOptions& options) {
  const std::vector<std::string_view>& trained = trained_schedules();
  if (std::find(trained.begin(), trained.end(), options.schedule) == trained.end()) {
    return invalid_argument(
        fmt::format("schedule '{}' is not one that trains in this version; use one of {}",
                    options.schedule, fmt::join(trained, ", ")));
  }
  if (options.dispatch != "rotation" && options.dispatch != "static") {
    return invalid_argument(
        fmt::format("dispatch '{}' is unknown; use rotation or static", options.dispatch));
  }
  if (options.residency != "auto" && options.residency != "off") {
    return invalid_argument(
        fmt::format("residency '{}' is unknown; use auto or off", options.residency));
  }
  if (options.activations != "auto" && options.activations != "recompute" &&
      options.activations != "keep") {
    return invalid_argument(fmt::format("activations '{}' is unknown; use auto, recompute or keep",
                                        options.activations));
  }
  if (!binds_stages(options.schedule)) {
    if (options.activations != "keep") return Status::ok();
    return unimplemented(fmt::format(
        "activations = keep with schedule {}: this version does not have it yet; streamed stages "
        "recompute, use auto or a schedule that binds stages",
        options.schedule));
  }
  if (options.dispatch != "rotation" || options.max_stage_layers != 0) {
    return invalid_argument(
        fmt::format("schedule {} places and cuts stages itself: schedule.dispatch and "
                    "schedule.max_stage_layers are for roundpipe and single; leave them out",
                    options.schedule));
  }
  return Status::ok();
}

}  // namespace

bool devices_can_update(const TrainerOptions& options) {
  return options.optimizer == "adamw" && options.moments == "fp32";
}

Status check_optimizer(const TrainerOptions& options) {
  const std::vector<std::string_view>& kinds = optimizer_kinds();
  if (std::find(kinds.begin(), kinds.end(), options.optimizer) == kinds.end()) {
    std::string nearest =
        nearest_name(options.optimizer, std::vector<std::string>(kinds.begin(), kinds.end()));
    return invalid_argument(
        fmt::format("optimizer '{}' is unknown{}; use one of {}", options.optimizer,
                    nearest.empty() ? "" : fmt::format(", did you mean '{}'?", nearest),
                    fmt::join(kinds, ", ")));
  }
  if (options.moments != "fp32" && options.moments != "bf16" && options.moments != "8bit") {
    return invalid_argument(
        fmt::format("moments '{}' are unknown; use fp32, bf16 or 8bit", options.moments));
  }
  bool is_auto = options.device_share == kAutoShare;
  if (!is_auto && !(options.device_share >= 0 && options.device_share <= 1)) {
    return invalid_argument(
        fmt::format("device_share is {}; it must be from 0 to 1", options.device_share));
  }
  if (options.device_share > 0 && !devices_can_update(options)) {
    return invalid_argument(fmt::format(
        "optimizer.device_share = {} with optimizer.kind = \"{}\" and optimizer.moments = \"{}\": "
        "devices update adamw with fp32 moments only; set optimizer.device_share = 0",
        options.device_share, options.optimizer, options.moments));
  }
  if (options.momentum < 0 || options.momentum >= 1) {
    return invalid_argument(
        fmt::format("momentum is {}; it must be from 0 up to, not including, 1", options.momentum));
  }
  if (!(options.loss_scale >= kLeastLossScale) ||
      !std::isfinite(static_cast<float>(options.loss_scale))) {
    return invalid_argument(fmt::format("loss_scale is {}; it must be from 1 up to what fp32 holds",
                                        options.loss_scale));
  }
  return Status::ok();
}

bool updates_wait_for_norm(const TrainerOptions& options, DType dtype) {
  return options.clip_norm > 0 || dtype == DType::kF16;
}

UpdateRule update_rule(const TrainerOptions& options) {
  if (options.optimizer == "adam") return UpdateRule::kAdam;
  if (options.optimizer == "lion") return UpdateRule::kLion;
  if (options.optimizer == "sgd") {
    return options.momentum > 0 ? UpdateRule::kSgd : UpdateRule::kPlainSgd;
  }
  return UpdateRule::kAdamW;
}

MomentOptions moment_options(const TrainerOptions& options) {
  MomentOptions moments;
  moments.count = moment_count(update_rule(options));
  if (options.moments == "bf16") moments.format = MomentFormat::kBFloat16;
  if (options.moments == "8bit") moments.format = MomentFormat::kBlockwise8;
  return moments;
}

UpdateNumbers common_update_numbers(const TrainerOptions& options, int64_t step) {
  UpdateNumbers numbers;
  numbers.rule = update_rule(options);
  bool has_momentum = numbers.rule == UpdateRule::kSgd;
  numbers.beta1 = static_cast<float>(has_momentum ? options.momentum : options.beta1);
  numbers.beta2 = static_cast<float>(options.beta2);
  numbers.epsilon = static_cast<float>(options.epsilon);
  numbers.step = step;
  return numbers;
}

namespace {

Status check_loss_terms(const TrainerOptions& options) {
  if (!(options.z_loss >= 0 && options.z_loss <= kMostZLoss)) {
    return invalid_argument(
        fmt::format("z_loss is {}; it must be from 0 up to {}", options.z_loss, kMostZLoss));
  }
  // Rounded to fp32 it must stay below 1 too.
  if (!(options.label_smoothing >= 0 && static_cast<float>(options.label_smoothing) < 1.0f)) {
    return invalid_argument(
        fmt::format("label_smoothing is {}; it must be from 0 up to, not including, 1",
                    options.label_smoothing));
  }
  return Status::ok();
}

}  // namespace

Status check_trainer_options(const TrainerOptions& options, size_t devices) {
  if (devices == 0) return invalid_argument("training needs at least one device");
  STAGECOACH_RETURN_IF_ERROR(check_loss_terms(options));
  STAGECOACH_RETURN_IF_ERROR(check_optimizer(options));
  STAGECOACH_RETURN_IF_ERROR(check_schedule(options));
  if (options.schedule == "single" && devices != 1) {
    return invalid_argument(fmt::format(
        "schedule single uses one device; {} were given: name one or use roundpipe", devices));
  }
  STAGECOACH_RETURN_IF_FAILED(parse_update_mode(options.update));
  if (options.batch < 1 || options.sequence < 1 || options.micro_batches < 1 ||
      options.rounds < 1) {
    return invalid_argument("batch, sequence, micro-batches and rounds must be at least 1");
  }
  if (options.batch > kMostTokens / options.sequence) {
    return invalid_argument(fmt::format("batch {} of sequences of {} is more than {} tokens",
                                        options.batch, options.sequence, kMostTokens));
  }
  if (options.batch % options.micro_batches != 0) {
    return invalid_argument(fmt::format("batch {} is not divisible by {} micro-batches",
                                        options.batch, options.micro_batches));
  }
  if (options.micro_batches % options.rounds != 0) {
    return invalid_argument(fmt::format("{} micro-batches are not divisible by {} rounds",
                                        options.micro_batches, options.rounds));
  }
  return Status::ok();
}

}  // namespace stagecoach
