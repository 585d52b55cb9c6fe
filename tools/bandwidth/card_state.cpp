#include "tools/bandwidth/card_state.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace stagecoach {

namespace {

template <typename Value>
Json known(const std::optional<Value>& value) {
  return value.has_value() ? Json(*value) : Json();
}

Json processes_json(const std::optional<std::vector<CardProcess>>& processes) {
  if (!processes.has_value()) return {};
  Json list = Json::array();
  for (const CardProcess& process : *processes) {
    Json one = Json::object();
    one["id"] = process.id;
    one["memory_bytes"] = known(process.memory_bytes);
    list.push_back(std::move(one));
  }
  return list;
}

Json reasons_json(const std::optional<std::vector<std::string>>& reasons) {
  if (!reasons.has_value()) return {};
  Json list = Json::array();
  for (const std::string& reason : *reasons) list.push_back(reason);
  return list;
}

template <typename Value>
std::string or_unknown(const std::optional<Value>& value, const char* unit) {
  return value.has_value() ? fmt::format("{:.4g} {}", static_cast<double>(*value), unit)
                           : "unknown";
}

}  // namespace

std::optional<bool> CardState::maps_all_memory() const {
  if (!bar_bytes.has_value() || !memory_bytes.has_value()) return std::nullopt;
  // A part of the memory is the driver's own, and windows are powers of two.
  return *bar_bytes >= *memory_bytes / 4 * 3;
}

Json card_state_json(const CardState& state) {
  Json json = Json::object();
  json["source"] = state.source;
  json["pcie_generation"] = known(state.pcie_generation);
  json["max_pcie_generation"] = known(state.max_pcie_generation);
  json["pcie_width"] = known(state.pcie_width);
  json["max_pcie_width"] = known(state.max_pcie_width);
  json["replays"] = known(state.replays);
  json["core_clock_mhz"] = known(state.core_clock_mhz);
  json["max_core_clock_mhz"] = known(state.max_core_clock_mhz);
  json["memory_clock_mhz"] = known(state.memory_clock_mhz);
  json["max_memory_clock_mhz"] = known(state.max_memory_clock_mhz);
  json["power_w"] = known(state.power_w);
  json["power_limit_w"] = known(state.power_limit_w);
  json["temperature_c"] = known(state.temperature_c);
  json["busy_percent"] = known(state.busy_percent);
  json["throttle_reasons"] = reasons_json(state.throttle_reasons);
  json["ecc"] = known(state.has_ecc);
  json["persistence"] = known(state.is_persistent);
  json["mig"] = known(state.has_mig);
  json["mig_parent"] = state.mig_parent.empty() ? Json() : Json(state.mig_parent);
  json["bar_bytes"] = known(state.bar_bytes);
  json["resizable_bar"] = known(state.maps_all_memory());
  json["processes"] = processes_json(state.processes);
  return json;
}

std::string card_state_text(const CardState& state) {
  std::string text =
      fmt::format("core {}, memory {}, {} of {}, {}", or_unknown(state.core_clock_mhz, "MHz"),
                  or_unknown(state.memory_clock_mhz, "MHz"), or_unknown(state.power_w, "W"),
                  or_unknown(state.power_limit_w, "W"), or_unknown(state.temperature_c, "C"));
  if (state.replays.has_value()) text += fmt::format(", {} replays", *state.replays);
  if (state.throttle_reasons.has_value() && !state.throttle_reasons->empty()) {
    text += fmt::format(", slowed down by {}", fmt::join(*state.throttle_reasons, " and "));
  }
  if (state.has_mig.value_or(false)) text += ", MIG";
  if (state.processes.has_value()) text += fmt::format(", {} processes", state.processes->size());
  return text;
}

}  // namespace stagecoach
