#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/status.h"
#include "model/lora_options.h"
#include "model/weight_transfer.h"

namespace stagecoach {

/// Files of an adapter's folder, as PEFT has them.
inline constexpr const char* kAdapterConfigFile = "adapter_config.json";
inline constexpr const char* kAdapterWeightsFile = "adapter_model.safetensors";

/// What adapter_config.json says.
struct AdapterConfig {
  LoraOptions lora;
  std::string base;            ///< base_model_name_or_path
  bool is_transposed = false;  ///< fan_in_fan_out: the base's matrices are [in, out], as GPT-2's
  std::vector<std::string> notes;  ///< what a person should know, a line each
};

/// Whether `folder` is an adapter's.
bool is_adapter_folder(const std::string& folder);

/// Reads the text of an adapter_config.json. `source` names the file. Refused by name: other
/// methods than LoRA, and settings that change the result and that this version does not have
/// (DoRA, biases, ranks by module, modules that are saved whole, …), those it does not know among
/// them.
Result<AdapterConfig> parse_adapter_config(std::string_view text, const std::string& source);
/// The same of a folder.
Result<AdapterConfig> read_adapter_config(const std::string& folder);

/// An adapter_config.json that PEFT reads; `parse_adapter_config` gives the same settings back.
Json adapter_config_to_json(const AdapterConfig& config);

/// The name of an adapter's parameter in its file: "base_model.model." and the network's.
std::string adapter_tensor_name(std::string_view parameter);

/// Gives every parameter of `network`'s adapters to `sink` from the folder's file. A tensor that is
/// missing, belongs to no adapter, or has another shape or type is refused by name before that, and
/// so is a folder whose weights are no safetensors file. Errors: also those of SafetensorsFile.
Status load_adapters(const std::string& folder, const Network& network, const ParameterSink& sink);
/// Ok when `load_adapters` would find every parameter.
Status check_adapters(const std::string& folder, const Network& network);

}  // namespace stagecoach
