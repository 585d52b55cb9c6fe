#include "tests/fuzz/fuzz_targets.h"

#include <string>
#include <string_view>

#include "core/check.h"
#include "core/json.h"
#include "model/architecture_config.h"
#include "model/gpt2_config.h"
#include "model/peft_adapter.h"
#include "model/safetensors.h"
#include "model/weight_folder.h"
#include "tests/train/data_exercise.h"

namespace stagecoach {

namespace {

std::string_view text_of(std::span<const uint8_t> input) {
  return {reinterpret_cast<const char*>(input.data()), input.size()};
}

/// A refusal says why.
void check_refusal(const Status& status) {
  STAGECOACH_CHECK(!status.message().empty());
}

/// The input is a whole file.
void run_safetensors(std::span<const uint8_t> input) {
  std::span<const std::byte> bytes = std::as_bytes(input);
  auto size = static_cast<ByteCount>(bytes.size());
  Result<ByteCount> data_start = safetensors_data_start(bytes, size, "fuzz");
  Result<SafetensorsHeader> header = parse_safetensors(bytes, size, "fuzz");
  if (!header.is_ok()) return check_refusal(header.status());
  STAGECOACH_CHECK(data_start.is_ok());
  ByteCount covered = *data_start;
  const std::string* previous = nullptr;
  for (const SafetensorInfo& tensor : header->tensors) {
    STAGECOACH_CHECK(previous == nullptr || *previous < tensor.name);
    STAGECOACH_CHECK(tensor.size >= 0 && tensor.offset >= *data_start);
    STAGECOACH_CHECK(tensor.offset + tensor.size <= size);
    covered += tensor.size;
    previous = &tensor.name;
  }
  STAGECOACH_CHECK(covered == size);
}

void run_weights_index(std::span<const uint8_t> input) {
  auto entries = parse_weights_index(text_of(input), "fuzz");
  if (!entries.is_ok()) return check_refusal(entries.status());
  STAGECOACH_CHECK(!entries->empty());
  for (const auto& [tensor, file] : *entries) {
    STAGECOACH_CHECK(file.find('/') == std::string::npos && file != ".." && !file.empty());
  }
}

void run_config(std::span<const uint8_t> input) {
  Result<ParsedArchitecture> shape = parse_architecture(text_of(input), "fuzz");
  if (shape.is_ok()) {
    STAGECOACH_CHECK(check_architecture(shape->architecture).is_ok());
  } else {
    check_refusal(shape.status());
  }
  Result<ParsedGpt2Config> gpt2 = parse_gpt2_config(text_of(input), "fuzz");
  if (!gpt2.is_ok()) return check_refusal(gpt2.status());
  STAGECOACH_CHECK(check_gpt2_config(gpt2->config).is_ok());
  // What is written is read back as the same.
  std::string written = gpt2_config_to_json(gpt2->config).dump();
  Result<ParsedGpt2Config> again = parse_gpt2_config(written, "fuzz");
  STAGECOACH_CHECK(again.is_ok());
  STAGECOACH_CHECK(gpt2_config_to_json(again->config).dump() == written);
}

void run_adapter_config(std::span<const uint8_t> input) {
  Result<AdapterConfig> config = parse_adapter_config(text_of(input), "fuzz");
  if (!config.is_ok()) return check_refusal(config.status());
  STAGECOACH_CHECK(config->lora.is_on() && config->lora.scale() > 0);
  std::string written = adapter_config_to_json(*config).dump();
  Result<AdapterConfig> again = parse_adapter_config(written, "fuzz");
  STAGECOACH_CHECK(again.is_ok());
  STAGECOACH_CHECK(adapter_config_to_json(*again).dump() == written);
}

void run_json(std::span<const uint8_t> input) {
  Result<Json> json = Json::parse(text_of(input));
  if (!json.is_ok()) return check_refusal(json.status());
  for (bool pretty : {false, true}) {
    std::string written = json->dump(pretty);
    Result<Json> again = Json::parse(written);
    STAGECOACH_CHECK(again.is_ok());
    STAGECOACH_CHECK(again->dump(pretty) == written);
  }
}

void run_jsonl(std::span<const uint8_t> input) {
  exercise_jsonl(text_of(input));
}

void run_token_file(std::span<const uint8_t> input) {
  exercise_token_file(std::as_bytes(input));
}

constexpr FuzzTarget kTargets[] = {
    {"safetensors", run_safetensors},
    {"weights_index", run_weights_index},
    {"config", run_config},
    {"adapter_config", run_adapter_config},
    {"json", run_json},
    {"jsonl", run_jsonl},
    {"token_file", run_token_file},
};

}  // namespace

std::span<const FuzzTarget> fuzz_targets() {
  return kTargets;
}

}  // namespace stagecoach
