#include "model/rotary_config.h"

#include <cmath>
#include <fmt/format.h>
#include <string>
#include <utility>

namespace stagecoach {

namespace {

using Kind = RotaryScaling::Kind;

/// Of every family that is computed, as transformers has it.
constexpr double kDefaultTheta = 10000;

/// One of the two tables a config.json may have.
class RotaryReader {
 public:
  RotaryReader(const Json& json, ConfigFields& config, std::string_view name, int64_t positions)
      : fields_(json, config.source(), std::string(name) + "."),
        config_(config),
        positions_(positions) {}

  /// Theta is left alone when the table does not have it.
  Status read(RotaryScaling& scaling) {
    STAGECOACH_RETURN_IF_ERROR(read_kind(scaling));
    STAGECOACH_ASSIGN_OR_RETURN(std::optional<double> theta, fields_.find_number("rope_theta"));
    has_theta_ = theta.has_value();
    if (theta) scaling.theta = *theta;
    STAGECOACH_RETURN_IF_ERROR(read_factor(scaling));
    if (scaling.kind == Kind::kLlama3) STAGECOACH_RETURN_IF_ERROR(read_llama3(scaling));
    if (scaling.kind == Kind::kYarn) STAGECOACH_RETURN_IF_ERROR(read_yarn(scaling));
    STAGECOACH_ASSIGN_OR_RETURN(std::optional<double> part,
                                fields_.find_number("partial_rotary_factor"));
    if (part.value_or(1) != 1) {
      return fields_.refuse("partial_rotary_factor", fmt::format("{}", *part),
                            "1: this version turns whole heads");
    }
    for (const std::string& name : fields_.unread()) {
      return fields_.refuse(name, "set",
                            fmt::format("nothing of that name with rope_type \"{}\"",
                                        rotary_kind_name(scaling.kind)));
    }
    for (const std::string& text : fields_.defaulted()) config_.note_default(text);
    return Status::ok();
  }

  bool has_theta() const { return has_theta_; }

 private:
  Status read_kind(RotaryScaling& scaling) {
    STAGECOACH_ASSIGN_OR_RETURN(std::optional<std::string> kind, fields_.find_text("rope_type"));
    STAGECOACH_ASSIGN_OR_RETURN(std::optional<std::string> old, fields_.find_text("type"));
    if (kind && old && *kind != *old) {
      return fields_.refuse("type", '"' + *old + '"',
                            fmt::format("\"{}\" as rope_type says", *kind));
    }
    if (!kind) kind = old;
    if (!kind) {
      fields_.note_default("rope_type = default");
      return Status::ok();
    }
    for (Kind known : {Kind::kNone, Kind::kLinear, Kind::kLlama3, Kind::kYarn}) {
      scaling.kind = known;
      if (*kind == rotary_kind_name(known)) return Status::ok();
    }
    return fields_.refuse("rope_type", '"' + *kind + '"',
                          "\"default\", \"linear\", \"llama3\" or \"yarn\": this version has no "
                          "other");
  }

  Status read_factor(RotaryScaling& scaling) {
    if (scaling.kind == Kind::kNone) return Status::ok();
    STAGECOACH_RETURN_IF_ERROR(fields_.read_number("factor", scaling.factor));
    if (scaling.factor >= 1) return Status::ok();
    return fields_.refuse("factor", fmt::format("{}", scaling.factor),
                          "1 or more: positions are divided by it");
  }

  Status read_original(RotaryScaling& scaling) {
    constexpr std::string_view kName = "original_max_position_embeddings";
    STAGECOACH_ASSIGN_OR_RETURN(std::optional<double> outside, config_.find_number(kName));
    double fallback = outside.value_or(static_cast<double>(positions_));
    STAGECOACH_ASSIGN_OR_RETURN(std::optional<double> found, fields_.find_number(kName));
    if (!found && !outside) fields_.note_default(fmt::format("{} = {}", kName, fallback));
    scaling.original_positions = found.value_or(fallback);
    if (outside && *outside != scaling.original_positions) {
      return fields_.refuse(kName, fmt::format("{}", scaling.original_positions),
                            fmt::format("{} as the field outside says", *outside));
    }
    if (scaling.original_positions >= 1) return Status::ok();
    return fields_.refuse(kName, fmt::format("{}", scaling.original_positions), "1 or more");
  }

  Status read_llama3(RotaryScaling& scaling) {
    STAGECOACH_RETURN_IF_ERROR(read_original(scaling));
    STAGECOACH_RETURN_IF_ERROR(
        fields_.read_number("low_freq_factor", scaling.low_frequency_factor));
    STAGECOACH_RETURN_IF_ERROR(
        fields_.read_number("high_freq_factor", scaling.high_frequency_factor));
    if (scaling.low_frequency_factor > 0 &&
        scaling.high_frequency_factor > scaling.low_frequency_factor) {
      return Status::ok();
    }
    return fields_.refuse("high_freq_factor", fmt::format("{}", scaling.high_frequency_factor),
                          fmt::format("more than low_freq_factor, {}, which is above 0",
                                      scaling.low_frequency_factor));
  }

  Status read_yarn(RotaryScaling& scaling) {
    STAGECOACH_RETURN_IF_ERROR(read_original(scaling));
    STAGECOACH_RETURN_IF_ERROR(fields_.read_number_or("beta_fast", 32, scaling.beta_fast));
    STAGECOACH_RETURN_IF_ERROR(fields_.read_number_or("beta_slow", 1, scaling.beta_slow));
    if (!(scaling.beta_slow > 0 && scaling.beta_fast >= scaling.beta_slow)) {
      return fields_.refuse(
          "beta_fast", fmt::format("{}", scaling.beta_fast),
          fmt::format("beta_slow, {}, or more, and both above 0", scaling.beta_slow));
    }
    STAGECOACH_RETURN_IF_ERROR(fields_.read_bool_or("truncate", true, scaling.truncates));
    STAGECOACH_ASSIGN_OR_RETURN(std::optional<double> given,
                                fields_.find_number("attention_factor"));
    STAGECOACH_ASSIGN_OR_RETURN(std::optional<double> scale, fields_.find_number("mscale"));
    STAGECOACH_ASSIGN_OR_RETURN(std::optional<double> all, fields_.find_number("mscale_all_dim"));
    auto grown = [&](double by) { return 0.1 * by * std::log(scaling.factor) + 1; };
    bool has_both = scale.value_or(0) != 0 && all.value_or(0) != 0;
    scaling.magnitude = given ? *given : has_both ? grown(*scale) / grown(*all) : grown(1);
    if (!given) fields_.note_default(fmt::format("attention_factor = {}", scaling.magnitude));
    if (scaling.magnitude > 0) return Status::ok();
    return fields_.refuse("attention_factor", fmt::format("{}", scaling.magnitude), "above 0");
  }

  ConfigFields fields_;
  ConfigFields& config_;
  int64_t positions_;
  bool has_theta_ = false;
};

/// What one of the tables says; nothing when it is not there.
Result<std::optional<RotaryScaling>> read_table(ConfigFields& fields, std::string_view name,
                                                int64_t positions, std::optional<double>& theta) {
  const Json* json = fields.find(name);
  if (json == nullptr || (json->is_object() && json->members().empty())) {
    return std::optional<RotaryScaling>();
  }
  if (!json->is_object()) return fields.refuse(name, json->dump(), "a table or null");
  for (const auto& [key, value] : json->members()) {
    if (!value.is_object()) continue;
    return fields.refuse(fmt::format("{}.{}", name, key), "a table",
                         "one set of numbers for all layers: this version has none per layer type");
  }
  RotaryScaling scaling;
  RotaryReader reader(*json, fields, name, positions);
  STAGECOACH_RETURN_IF_ERROR(reader.read(scaling));
  if (!reader.has_theta()) return std::optional(scaling);
  if (theta && *theta != scaling.theta) {
    return fields.refuse(fmt::format("{}.rope_theta", name), fmt::format("{}", scaling.theta),
                         fmt::format("{} as the file says elsewhere", *theta));
  }
  theta = scaling.theta;
  return std::optional(scaling);
}

}  // namespace

Result<RotaryScaling> read_rotary(ConfigFields& fields, int64_t positions) {
  STAGECOACH_ASSIGN_OR_RETURN(std::optional<double> theta, fields.find_number("rope_theta"));
  STAGECOACH_ASSIGN_OR_RETURN(std::optional<RotaryScaling> newer,
                              read_table(fields, "rope_parameters", positions, theta));
  STAGECOACH_ASSIGN_OR_RETURN(std::optional<RotaryScaling> older,
                              read_table(fields, "rope_scaling", positions, theta));
  if (!theta) fields.note_default(fmt::format("rope_theta = {}", kDefaultTheta));
  for (std::optional<RotaryScaling>* table : {&newer, &older}) {
    if (table->has_value()) (*table)->theta = theta.value_or(kDefaultTheta);
  }
  if (newer && older && *newer != *older) {
    return fields.refuse("rope_scaling", "another scaling than rope_parameters",
                         "one of the two, or the same in both");
  }
  RotaryScaling scaling = newer ? *newer : older.value_or(RotaryScaling{});
  scaling.theta = theta.value_or(kDefaultTheta);
  if (scaling.theta > 1 && std::isfinite(scaling.theta)) return scaling;
  return fields.refuse("rope_theta", fmt::format("{}", scaling.theta), "a number above 1");
}

}  // namespace stagecoach
