#include "train/config.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <optional>
#include <set>

#include "core/suggest.h"
#include "train/config_fields.h"
#include "train/trainer.h"

namespace stagecoach {

namespace {

using internal::config_fields;
using internal::ConfigField;
using internal::shown;

const ConfigField* find_field(std::string_view key) {
  for (const ConfigField& field : config_fields()) {
    if (field.key == key) return &field;
  }
  return nullptr;
}

std::string section_of(std::string_view key) {
  return std::string(key.substr(0, key.find('.')));
}

std::string last_part(std::string_view key) {
  size_t dot = key.rfind('.');
  return std::string(dot == std::string_view::npos ? key : key.substr(dot + 1));
}

std::vector<std::string> sections() {
  std::vector<std::string> names;
  for (const ConfigField& field : config_fields()) {
    std::string section = section_of(field.key);
    if (names.empty() || names.back() != section) names.push_back(section);
  }
  return names;
}

/// The known key that `key` was probably meant to be; empty when none is near.
std::string nearest_key(const std::string& key) {
  std::vector<std::string> keys, last_parts;
  for (const ConfigField& field : config_fields()) {
    keys.push_back(field.key);
    last_parts.push_back(last_part(field.key));
  }
  // A key in the wrong section is as common a slip as a misspelt one.
  for (const ConfigField& field : config_fields()) {
    if (last_part(field.key) == last_part(key)) return field.key;
  }
  if (std::string nearest = nearest_name(key, keys); !nearest.empty()) return nearest;
  std::string nearest = nearest_name(last_part(key), last_parts);
  for (const ConfigField& field : config_fields()) {
    if (!nearest.empty() && last_part(field.key) == nearest) return field.key;
  }
  return "";
}

Status unknown_key(const std::string& where, const std::string& key) {
  std::string nearest = nearest_key(key);
  if (!nearest.empty()) {
    return invalid_argument(
        fmt::format("{}: unknown key '{}'; did you mean '{}'?", where, key, nearest));
  }
  std::vector<std::string> known;
  for (const ConfigField& field : config_fields()) {
    if (section_of(field.key) == section_of(key)) known.push_back(last_part(field.key));
  }
  if (known.empty()) {
    return invalid_argument(fmt::format("{}: unknown key '{}'; known sections: {}", where, key,
                                        fmt::join(sections(), ", ")));
  }
  return invalid_argument(fmt::format("{}: unknown key '{}'; [{}] knows {}", where, key,
                                      section_of(key), fmt::join(known, ", ")));
}

/// Where keys come from, for messages: "run.toml: line 3".
using Locate = std::function<std::string(const std::string& key)>;

Status read_value(const ConfigField& field, const Json& value, const std::string& where,
                  TrainConfig& config) {
  Status status = field.read(value, config);
  if (status.is_ok()) return status;
  // A table's message names the key in it.
  if (field.is_table && value.is_object()) return status.with_context(where);
  return Status(status.code(),
                fmt::format("{}: {} = {}{}", where, field.key, shown(value), status.message()));
}

Status read_section(const std::string& section, const Json& table, const Locate& locate,
                    TrainConfig& config) {
  if (!table.is_object()) {
    return invalid_argument(
        fmt::format("{}: {} is {}; it must be a section: write [{}] and its keys below",
                    locate(section), section, table.dump(), section));
  }
  for (const auto& [name, value] : table.members()) {
    std::string key = section + "." + name;
    const ConfigField* field = find_field(key);
    if (field == nullptr) return unknown_key(locate(key), key);
    STAGECOACH_RETURN_IF_ERROR(read_value(*field, value, locate(key), config));
  }
  return Status::ok();
}

/// The value of an override: TOML where it is, else the bare word where text is expected.
Result<Json> override_value(const ConfigField& field, const std::string& text,
                            const std::string& where) {
  Result<Json> parsed = parse_toml("value = " + text, where);
  bool single = parsed.is_ok() && parsed->members().size() == 1;
  if (single) {
    const Json& value = *parsed->find("value");
    bool bare_number = field.is_text && value.is_number();
    // A folder called 123 is text, but sizes may be written as numbers.
    bool may_be_number = field.is_table || field.key == "train.eval_tokens" ||
                         field.key == "output.save_copy" || field.key == "train.loss_scale" ||
                         field.key == "train.router_loss" || field.key == "optimizer.device_share";
    if (!bare_number || may_be_number) return value;
  }
  if (field.is_text) return Json(text);
  return invalid_argument(fmt::format("{}: the value '{}' is not TOML; write for example {} = {}",
                                      where, text, field.key, field.show(TrainConfig{}).dump()));
}

Status apply_override(const std::string& text, TrainConfig& config) {
  std::string where = "command line";
  size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    return invalid_argument(
        fmt::format("{}: '{}' is not KEY=VALUE; write for example train.batch=32", where, text));
  }
  std::string key = text.substr(0, equals);
  key.erase(key.find_last_not_of(' ') + 1);
  const ConfigField* field = find_field(key);
  // "model.lora.rank" is a key of the table "model.lora".
  std::string table_key = key.substr(0, key.rfind('.'));
  const ConfigField* table = field == nullptr ? find_field(table_key) : nullptr;
  if (table != nullptr && table->is_table) field = table;
  if (field == nullptr) return unknown_key(where, key);
  STAGECOACH_ASSIGN_OR_RETURN(Json value, override_value(*field, text.substr(equals + 1), where));
  if (field == table) {
    Json member = std::move(value);
    value = Json::object();
    value[last_part(key)] = std::move(member);
  }
  return read_value(*field, value, where, config);
}

/// Divisors and multiples near a value, for messages: "8 or 12".
std::string nearest_multiples(int64_t value, int64_t of) {
  int64_t below = value / of * of;
  if (below == 0) return std::to_string(of);
  return fmt::format("{} or {}", below, below + of);
}

std::string nearest_divisors(int64_t value, int64_t wanted) {
  int64_t below = std::min(wanted, value);
  while (value % below != 0) --below;
  int64_t above = wanted;
  while (above < value && value % above != 0) ++above;
  if (above > value || value % above != 0 || above == below) return std::to_string(below);
  return fmt::format("{} or {}", below, above);
}

Status check_divisible(const TrainConfig& config, const std::string& source) {
  const RunConfig& run = config.train;
  if (run.batch % run.micro_batches != 0) {
    return invalid_argument(fmt::format(
        "{}: train.batch = {} does not divide by train.microbatches = {}: batch = microbatches x "
        "sequences of a micro-batch, {} = {} x {:.3g}; set train.batch = {}, or train.microbatches "
        "= {}",
        source, run.batch, run.micro_batches, run.batch, run.micro_batches,
        static_cast<double>(run.batch) / static_cast<double>(run.micro_batches),
        nearest_multiples(run.batch, run.micro_batches),
        nearest_divisors(run.batch, run.micro_batches)));
  }
  if (run.micro_batches % run.rounds != 0) {
    return invalid_argument(fmt::format(
        "{}: train.microbatches = {} does not divide by train.rounds = {}: microbatches = rounds x "
        "micro-batches of a round, {} = {} x {:.3g}; set train.rounds = {}, or train.microbatches "
        "= {}",
        source, run.micro_batches, run.rounds, run.micro_batches, run.rounds,
        static_cast<double>(run.micro_batches) / static_cast<double>(run.rounds),
        nearest_divisors(run.micro_batches, run.rounds),
        nearest_multiples(run.micro_batches, run.rounds)));
  }
  return Status::ok();
}

/// Adapters that were asked for without a number.
void complete_lora(ModelConfig& model) {
  if (!model.lora.is_on()) return;
  if (model.lora.alpha == 0) model.lora.alpha = static_cast<double>(model.lora.rank);
  if (model.lora.targets.empty()) model.lora.targets = {std::string(kAllLinear)};
}

Status check_lora(const ModelConfig& model, const std::string& source) {
  const LoraOptions& lora = model.lora;
  bool has_settings = lora.alpha != 0 || !lora.targets.empty() || lora.uses_rslora;
  if (!model.lora_path.empty() && (lora.is_on() || has_settings)) {
    return invalid_argument(fmt::format(
        "{}: model.lora.path = \"{}\" beside other keys of model.lora: rank, alpha and targets are "
        "the adapter's own; leave them out",
        source, model.lora_path));
  }
  if (!lora.is_on() && (has_settings || (model.names_lora && model.lora_path.empty()))) {
    return invalid_argument(
        fmt::format("{}: model.lora.rank is missing; set it, for example model.lora = {{rank = 16, "
                    "alpha = 32, targets = \"all-linear\"}}",
                    source));
  }
  bool has_adapters = lora.is_on() || !model.lora_path.empty();
  if (has_adapters && model.init == "random") {
    return invalid_argument(fmt::format(
        "{}: model.lora with model.init = \"random\": adapters add to weights that were trained; "
        "name a folder with weights and leave model.init out",
        source));
  }
  return Status::ok();
}

Status check_combinations(const TrainConfig& config, const std::string& source) {
  if (config.model.path.empty()) {
    return invalid_argument(fmt::format(
        "{}: model.path is missing; name a Hugging Face folder, a config.json or a preset, for "
        "example model.path = \"gpt2\"",
        source));
  }
  STAGECOACH_RETURN_IF_ERROR(check_lora(config.model, source));
  if (config.data.train.empty()) {
    return invalid_argument(fmt::format(
        "{}: data.train is missing or empty; name at least one file, for example data.train "
        "= [\"text.txt\"]",
        source));
  }
  if (config.train.eval_every > 0 && config.data.validation.empty()) {
    return invalid_argument(
        fmt::format("{}: train.eval_every = {} but data.validation is empty; name a validation "
                    "file or set train.eval_every = 0",
                    source, config.train.eval_every));
  }
  if (config.activations.policy == "keep" && !binds_stages(config.schedule.kind)) {
    return unimplemented(
        fmt::format("{}: activations.policy = \"keep\" with schedule.kind = \"{}\": this version "
                    "does not have it yet; streamed stages recompute: set activations.policy = "
                    "\"auto\"",
                    source, config.schedule.kind));
  }
  if (config.train.loss_scale > 0 && config.model.dtype != DType::kF16) {
    return invalid_argument(fmt::format(
        "{}: train.loss_scale = {} with model.dtype = \"{}\": only fp16 scales its loss; "
        "remove the key or set model.dtype = \"fp16\"",
        source, config.train.loss_scale, dtype_name(config.model.dtype)));
  }
  return check_divisible(config, source);
}

Result<TrainConfig> make_config(const Json& table, const std::vector<std::string>& overrides,
                                const std::string& source, const Locate& locate) {
  TrainConfig config;
  if (!table.is_object()) {
    return invalid_argument(fmt::format("{}: a configuration is a table", source));
  }
  std::vector<std::string> known = sections();
  for (const auto& [name, value] : table.members()) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      std::string nearest = nearest_name(name, known);
      if (!value.is_object() || nearest.empty()) return unknown_key(locate(name), name);
      return invalid_argument(
          fmt::format("{}: unknown section [{}]; did you mean [{}]?", locate(name), name, nearest));
    }
    STAGECOACH_RETURN_IF_ERROR(read_section(name, value, locate, config));
  }
  for (const std::string& text : overrides) {
    STAGECOACH_RETURN_IF_ERROR(apply_override(text, config));
  }
  complete_lora(config.model);
  STAGECOACH_RETURN_IF_ERROR(check_combinations(config, source));
  return config;
}

std::string_view trim(std::string_view text) {
  size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

/// Line of `key` ("section.name" or "section") in TOML text, from 1; nothing when it is written in
/// a way that this simple search does not follow, such as an inline table.
std::optional<int64_t> find_line(std::string_view text, const std::string& key) {
  std::string section;
  int64_t number = 0;
  while (!text.empty()) {
    size_t end = text.find('\n');
    std::string_view line = trim(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    ++number;
    if (line.starts_with('[')) {
      section = trim(line.substr(1, line.find(']') - 1));
      if (section == key) return number;
      continue;
    }
    size_t equals = line.find('=');
    if (line.starts_with('#') || equals == std::string_view::npos) continue;
    std::string name(trim(line.substr(0, equals)));
    std::string full = section.empty() ? name : section + "." + name;
    if (full == key) return number;
  }
  return std::nullopt;
}

}  // namespace

Result<TrainConfig> make_train_config(const Json& table, const std::vector<std::string>& overrides,
                                      const std::string& source) {
  return make_config(table, overrides, source, [&source](const std::string&) { return source; });
}

Result<TrainConfig> parse_train_config(std::string_view text,
                                       const std::vector<std::string>& overrides,
                                       const std::string& source) {
  STAGECOACH_ASSIGN_OR_RETURN(Json table, parse_toml(text, source));
  return make_config(table, overrides, source, [&](const std::string& key) {
    std::optional<int64_t> line = find_line(text, key);
    return line.has_value() ? fmt::format("{}: line {}", source, *line) : source;
  });
}

namespace {

/// "{rank = 16, alpha = 32}"
std::string inline_table(const Json& table) {
  std::string text;
  for (const auto& [key, value] : table.members()) {
    text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", key, value.dump());
  }
  return fmt::format("{{{}}}", text);
}

}  // namespace

std::string train_config_to_toml(const TrainConfig& config) {
  std::string text, section;
  for (const ConfigField& field : config_fields()) {
    Json value = field.show(config);
    if (value.is_null()) continue;
    if (section_of(field.key) != section) {
      text += section.empty() ? "" : "\n";
      section = section_of(field.key);
      text += fmt::format("[{}]\n", section);
    }
    // JSON's texts, numbers and lists are TOML's too, but for one character.
    std::string written = value.is_object() ? inline_table(value) : value.dump();
    for (size_t at = 0; (at = written.find('\x7f', at)) != std::string::npos;) {
      written.replace(at, 1, "\\u007f");
    }
    bool rounds = field.key == "optimizer.moments" && config.optimizer.moments != "fp32";
    std::string comment = rounds ? fmt::format("  # {}", kMomentsChangeNumerics) : "";
    text += fmt::format("{} = {}{}\n", last_part(field.key), written, comment);
  }
  return text;
}

Json train_config_to_json(const TrainConfig& config) {
  Json json = Json::object();
  for (const ConfigField& field : config_fields()) {
    Json value = field.show(config);
    if (!value.is_null()) json[section_of(field.key)][last_part(field.key)] = std::move(value);
  }
  return json;
}

}  // namespace stagecoach
