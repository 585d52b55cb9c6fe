#include "tools/planned_model.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <utility>

#include "model/architecture_network.h"
#include "model/mapped_weights.h"
#include "model/model_source.h"
#include "model/peft_adapter.h"
#include "model/weight_transfer.h"
#include "train/config.h"

namespace stagecoach {

namespace {

/// Bytes of a boundary still fit 63 bits for any model.
constexpr int64_t kLongestSequence = int64_t{1} << 26;
/// Of `train` where model.dtype is left out.
const DType kTrainedDType = ModelConfig{}.dtype;

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

void note_training(const Architecture& architecture, int64_t tokens, const LoraOptions& lora,
                   bool adapts_experts, std::vector<std::string>& notes) {
  if (lora.is_on()) {
    std::string where = fmt::format("{}", fmt::join(lora.targets, ", "));
    if (lora.targets == std::vector<std::string>{std::string(kAllLinear)}) {
      where = fmt::format(
          "every matrix of attention{}",
          architecture.has_experts() ? adapts_experts ? ", router and experts" : "" : " and MLP");
    }
    notes.push_back(
        fmt::format("adapters of rank {} on {}; everything else is frozen", lora.rank, where));
  }
  if (adapts_experts) {
    notes.push_back(
        "planned only: training has no adapters of router and experts (--lora-experts)");
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

/// The adapters that are asked for: of a rank, or MODEL's own.
Result<LoraOptions> choose_adapters(const PlannedModelOptions& options, const ShapeSource& source) {
  if (options.lora_rank < 0 || options.lora_rank > kMostLoraRank) {
    return invalid_argument(fmt::format("--lora-rank is {}; it must be from 1 to {}",
                                        options.lora_rank, kMostLoraRank));
  }
  bool is_asked = options.lora_rank > 0;
  if (is_asked && source.lora.is_on()) {
    return invalid_argument(fmt::format(
        "--lora-rank is {}, and '{}' is an adapter's folder of rank {}: leave the option out, or "
        "name the base, '{}'",
        options.lora_rank, options.model, source.lora.rank, source.weights_folder));
  }
  if (options.adapts_experts && (!is_asked || !source.architecture.has_experts())) {
    return invalid_argument(fmt::format(
        "--lora-experts goes with --lora-rank and a model with experts; leave it out for '{}'",
        options.model));
  }
  if (options.maps_base && !is_asked && !source.lora.is_on()) {
    return invalid_argument(
        "--base mapped goes with --lora-rank or an adapter's folder: what is trained is in memory");
  }
  if (!is_asked) return source.lora;
  // With an alpha whose scale takes the most memory.
  return LoraOptions{options.lora_rank, 1, false, {std::string(kAllLinear)}};
}

/// The network that training would run, or of what it does not compute the shape.
Result<Network> make_planned_network(const PlannedModelOptions& options, const LoraOptions& lora,
                                     DType dtype, int64_t sequence, ShapeSource& source) {
  if (source.model && !options.adapts_experts) {
    Result<Network> computed =
        make_network(*source.model, NetworkHead::kLoss, dtype, sequence, lora);
    if (computed.is_ok()) return computed;
    bool has_base =
        lora.is_on() && make_network(*source.model, NetworkHead::kLoss, dtype, sequence).is_ok();
    if (has_base) return computed.status();
    source.refusal = computed.status().message();
  }
  ShapeOptions shape;
  shape.dtype = dtype;
  shape.lora_rank = lora.rank;
  shape.adapts_experts = options.adapts_experts;
  if (source.model && std::holds_alternative<DecoderConfig>(*source.model)) {
    shape.has_router_loss = std::get<DecoderConfig>(*source.model).router_loss > 0;
  }
  return make_shape_network(source.architecture, shape);
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
  STAGECOACH_ASSIGN_OR_RETURN(LoraOptions lora, choose_adapters(options, source));
  STAGECOACH_ASSIGN_OR_RETURN(model.network,
                              make_planned_network(options, lora, dtype, model.sequence, source));
  if (!source.adapter_folder.empty()) {
    STAGECOACH_RETURN_IF_ERROR(check_adapters(source.adapter_folder, model.network));
  }
  if (options.maps_base) map_frozen_blocks(model.network);
  bool is_computed = source.refusal.empty() && !options.adapts_experts;
  if (options.maps_base && is_computed && !source.weights_folder.empty()) {
    STAGECOACH_RETURN_IF_FAILED(
        MappedWeights::open(source.weights_folder, model.network, WeightProof::kHeaders));
  }
  if (!source.refusal.empty()) model.notes.push_back("planned only: " + source.refusal);
  if (options.dtype.empty() && dtype != kTrainedDType) {
    model.notes.push_back(fmt::format(
        "planned in {}, since --dtype is not given; training computes in {} unless model.dtype is",
        dtype_name, stagecoach::dtype_name(kTrainedDType)));
  }
  note_training(source.architecture, model.sequence * options.sequences, lora,
                options.adapts_experts, model.notes);
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
  model.notes.insert(model.notes.end(), source.notes.begin(), source.notes.end());
  for (const std::string& field : source.defaulted) {
    model.notes.push_back("config.json does not say: " + field);
  }
  for (const std::string& field : source.ignored) {
    model.notes.push_back("field of config.json without meaning here: " + field);
  }
  return model;
}

}  // namespace stagecoach
