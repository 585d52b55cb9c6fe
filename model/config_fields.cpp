#include "model/config_fields.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

namespace stagecoach {

namespace {

constexpr std::string_view kHarmless[] = {
    "_attn_implementation",
    "_name_or_path",
    "architectures",
    "auto_map",
    "bos_token_id",
    "chunk_size_feed_forward",
    "dtype",
    "eos_token_id",
    "finetuning_task",
    "gradient_checkpointing",
    "id2label",
    "initializer_range",
    "label2id",
    "language",
    "output_attentions",
    "output_hidden_states",
    "output_past",
    "pad_token_id",
    "prefix",
    "pretraining_tp",
    "problem_type",
    "return_dict",
    "sep_token_id",
    "task_specific_params",
    "tokenizer_class",
    "torch_dtype",
    "torchscript",
    "transformers_version",
    "use_cache",
};

}  // namespace

bool is_harmless_field(std::string_view name) {
  return std::find(std::begin(kHarmless), std::end(kHarmless), name) != std::end(kHarmless);
}

ConfigFields::ConfigFields(const Json& json, std::string source, std::string prefix)
    : json_(json), source_(std::move(source)), prefix_(std::move(prefix)) {}

Status ConfigFields::refuse(std::string_view field, std::string_view found,
                            std::string_view expected) const {
  return invalid_argument(
      fmt::format("{}: {}{} is {}, expected {}", source_, prefix_, field, found, expected));
}

Status ConfigFields::missing(std::string_view name, std::string_view expected) const {
  return refuse(name, "missing", expected);
}

const Json* ConfigFields::find(std::string_view name) {
  asked_.emplace_back(name);
  const Json* value = json_.find(name);
  return value != nullptr && value->is_null() ? nullptr : value;
}

Result<std::optional<int64_t>> ConfigFields::find_integer(Names names) {
  std::optional<int64_t> found;
  std::string_view first;
  for (std::string_view name : names) {
    const Json* value = find(name);
    if (value == nullptr) continue;
    if (!value->is_integer()) return refuse(name, value->dump(), "an integer");
    if (found && *found != value->as_integer()) {
      return refuse(name, value->dump(), fmt::format("{} as {} says", *found, first));
    }
    found = value->as_integer();
    first = name;
  }
  return found;
}

Result<std::optional<double>> ConfigFields::find_number(std::string_view name) {
  const Json* value = find(name);
  if (value == nullptr) return std::optional<double>();
  if (!value->is_number()) return refuse(name, value->dump(), "a number");
  return std::optional(value->as_number());
}

Result<std::optional<std::string>> ConfigFields::find_text(std::string_view name) {
  const Json* value = find(name);
  if (value == nullptr) return std::optional<std::string>();
  if (!value->is_string()) return refuse(name, value->dump(), "text");
  return std::optional(value->as_string());
}

Status ConfigFields::read_integer(Names names, int64_t& target) {
  STAGECOACH_ASSIGN_OR_RETURN(std::optional<int64_t> found, find_integer(names));
  if (!found) return missing(*names.begin(), "an integer");
  target = *found;
  return Status::ok();
}

Status ConfigFields::read_integer_or(Names names, int64_t fallback, int64_t& target) {
  STAGECOACH_ASSIGN_OR_RETURN(std::optional<int64_t> found, find_integer(names));
  if (!found) note_default(fmt::format("{}{} = {}", prefix_, *names.begin(), fallback));
  target = found.value_or(fallback);
  return Status::ok();
}

Status ConfigFields::read_number(std::string_view name, double& target) {
  STAGECOACH_ASSIGN_OR_RETURN(std::optional<double> found, find_number(name));
  if (!found) return missing(name, "a number");
  target = *found;
  return Status::ok();
}

Status ConfigFields::read_number_or(std::string_view name, double fallback, double& target) {
  STAGECOACH_ASSIGN_OR_RETURN(std::optional<double> found, find_number(name));
  if (!found) note_default(fmt::format("{}{} = {}", prefix_, name, fallback));
  target = found.value_or(fallback);
  return Status::ok();
}

Status ConfigFields::read_bool_or(std::string_view name, bool fallback, bool& target) {
  const Json* value = find(name);
  target = fallback;
  if (value == nullptr) {
    note_default(fmt::format("{}{} = {}", prefix_, name, fallback));
    return Status::ok();
  }
  if (!value->is_bool()) return refuse(name, value->dump(), "true or false");
  target = value->as_bool();
  return Status::ok();
}

std::vector<std::string> ConfigFields::unread() const {
  std::vector<std::string> names;
  for (const auto& [name, value] : json_.members()) {
    bool is_asked = std::find(asked_.begin(), asked_.end(), name) != asked_.end();
    if (!is_asked && !value.is_null()) names.push_back(name);
  }
  return names;
}

}  // namespace stagecoach
