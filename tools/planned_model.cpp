#include "tools/planned_model.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "model/architecture_network.h"
#include "model/mapped_weights.h"
#include "model/model_source.h"
#include "model/weight_transfer.h"

namespace stagecoach {

namespace {

/// Bytes of a boundary still fit 63 bits for any model.
constexpr int64_t kLongestSequence = int64_t{1} << 26;

Result<int64_t> choose_sequence(int64_t given, const Architecture& architecture,
                                std::vector<std::string>& notes) {
  int64_t positions = architecture.positions;
  if (given == 0) return std::min(kDefaultSequence, positions);
  bool is_learned = architecture.family == ModelFamily::kGpt2;
  int64_t most = is_learned ? positions : kLongestSequence;
  if (given < 1 || given > most) {
    return invalid_argument(fmt::format(
        "--sequence is {}; it must be from 1 to {}", given,
        is_learned ? fmt::format("the model's {} positions", most) : std::to_string(most)));
  }
  if (given > positions) {
    notes.push_back(
        fmt::format("{} tokens are more than the model's {} positions; rotary ones go "
                    "on",
                    given, positions));
  }
  return given;
}

void note_training(const Architecture& architecture, int64_t tokens, int64_t lora_rank,
                   std::vector<std::string>& notes) {
  if (lora_rank > 0) {
    notes.push_back(fmt::format(
        "adapters of rank {} on every matrix of attention, router and MLP or experts; the base, "
        "norms, biases, embedding and head are frozen",
        lora_rank));
  }
  if (!architecture.has_experts()) return;
  notes.push_back(fmt::format(
      "each token goes through {} of {} experts; the {} tokens of a micro-batch reach at most {}, "
      "but all of a layer's experts travel with it",
      architecture.experts_per_token, architecture.experts, tokens,
      architecture.experts_in_use(tokens)));
}

/// Names and shapes that could not be loaded are not planned for either; no weights are read.
Status check_headers(const ShapeSource& source, DType dtype, int64_t sequence) {
  if (source.weights_folder.empty() || !source.model) return Status::ok();
  Result<Network> network = make_network(*source.model, NetworkHead::kLoss, dtype, sequence);
  if (!network.is_ok()) return Status::ok();  // planned only, which is said
  return check_weights(source.weights_folder, *network, WeightProof::kHeaders);
}

}  // namespace

Result<PlannedModel> resolve_planned_model(const PlannedModelOptions& options) {
  STAGECOACH_ASSIGN_OR_RETURN(ShapeSource source, resolve_shape(options.model));
  PlannedModel model;
  model.positions = source.architecture.positions;
  STAGECOACH_ASSIGN_OR_RETURN(model.sequence,
                              choose_sequence(options.sequence, source.architecture, model.notes));
  std::string dtype_name = options.dtype;
  bool is_gpt2 = source.architecture.family == ModelFamily::kGpt2;
  if (dtype_name.empty()) dtype_name = is_gpt2 ? "fp32" : "bf16";
  STAGECOACH_ASSIGN_OR_RETURN(DType dtype, parse_compute_dtype(dtype_name));
  STAGECOACH_RETURN_IF_ERROR(check_headers(source, dtype, model.sequence));
  // Experts have adapters in plans alone, which also say what ranks there are.
  bool is_computed = options.lora_rank == 0 || (!source.architecture.has_experts() &&
                                                options.lora_rank <= source.architecture.hidden);
  if (source.model && is_computed) {
    LoraOptions lora{options.lora_rank, 1, false, {std::string(kAllLinear)}};
    Result<Network> computed =
        make_network(*source.model, NetworkHead::kLoss, dtype, model.sequence, lora);
    if (computed.is_ok()) {
      model.network = std::move(computed).value();
    } else {
      source.refusal = computed.status().message();
    }
  }
  if (!source.refusal.empty()) model.notes.push_back("planned only: " + source.refusal);
  if (model.network.layers.empty()) {
    ShapeOptions shape{dtype, options.lora_rank};
    if (source.model && std::holds_alternative<DecoderConfig>(*source.model)) {
      shape.has_router_loss = std::get<DecoderConfig>(*source.model).router_loss > 0;
    }
    STAGECOACH_ASSIGN_OR_RETURN(model.network, make_shape_network(source.architecture, shape));
  }
  note_training(source.architecture, model.sequence * options.sequences, options.lora_rank,
                model.notes);
  if (options.maps_base) map_frozen_blocks(model.network);
  model.architecture = source.architecture;
  if (source.model && std::holds_alternative<DecoderConfig>(*source.model)) {
    const auto& decoder = std::get<DecoderConfig>(*source.model);
    model.notes.push_back("rotary positions of " + describe_rotary(decoder.rotary));
    std::string warning = training_warning(decoder);
    if (!warning.empty()) model.notes.push_back(std::move(warning));
    if (decoder.router_loss > 0) {
      model.notes.push_back(fmt::format(
          "training adds {} x load-balancing loss of the experts, as router_aux_loss_coef says",
          decoder.router_loss));
    }
  }
  for (const std::string& field : source.defaulted) {
    model.notes.push_back("config.json does not say: " + field);
  }
  for (const std::string& field : source.ignored) {
    model.notes.push_back("field of config.json without meaning here: " + field);
  }
  return model;
}

}  // namespace stagecoach
