#include "model/computed_model.h"

#include <utility>

#include "model/architecture_config.h"
#include "model/gpt2.h"

namespace stagecoach {

Result<ParsedModel> parse_model(std::string_view text, const std::string& source) {
  STAGECOACH_ASSIGN_OR_RETURN(Json json, parse_config_json(text, source));
  ConfigFields fields(json, source);
  STAGECOACH_ASSIGN_OR_RETURN(ModelFamily family, read_model_family(fields));
  if (family == ModelFamily::kGpt2) {
    STAGECOACH_ASSIGN_OR_RETURN(ParsedGpt2Config parsed, parse_gpt2_config(text, source));
    return ParsedModel{parsed.config, gpt2_config_to_json(parsed.config),
                       std::move(parsed.defaulted), std::move(parsed.ignored)};
  }
  STAGECOACH_ASSIGN_OR_RETURN(ParsedDecoderConfig parsed, parse_decoder_config(text, source));
  return ParsedModel{std::move(parsed.config), beside_fp32_weights(std::move(json)),
                     std::move(parsed.defaulted), std::move(parsed.ignored)};
}

Result<ParsedModel> model_preset(std::string_view name) {
  if (Result<Gpt2Config> gpt2 = gpt2_preset(name); gpt2.is_ok()) {
    return ParsedModel{*gpt2, gpt2_config_to_json(*gpt2), {}, {}};
  }
  STAGECOACH_ASSIGN_OR_RETURN(DecoderConfig config, decoder_preset(name));
  Json json = beside_fp32_weights(decoder_config_to_json(config));
  return ParsedModel{std::move(config), std::move(json), {}, {}};
}

Architecture architecture_of(const ComputedModel& model) {
  if (const auto* gpt2 = std::get_if<Gpt2Config>(&model)) return architecture_of(*gpt2);
  return std::get<DecoderConfig>(model).architecture;
}

Result<Network> make_network(const ComputedModel& model, NetworkHead head, DType dtype,
                             int64_t sequence, const LoraOptions& lora, bool has_documents) {
  if (const auto* gpt2 = std::get_if<Gpt2Config>(&model))
    return make_gpt2(*gpt2, head, dtype, lora, has_documents);
  return make_decoder(std::get<DecoderConfig>(model), head, dtype, sequence, lora, has_documents);
}

}  // namespace stagecoach
