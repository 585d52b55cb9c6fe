#include "tools/memory_table.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

namespace stagecoach {

namespace {

using Row = std::pair<const char*, ByteCount>;

std::vector<Row> host_rows(const MemoryTable& table) {
  return {{"weights", table.weights()},           {"moments", table.moments},
          {"gradients", table.gradients},         {"frozen", table.host.state.frozen},
          {"landing", table.host.state.landing},  {"boundaries", table.host.boundaries},
          {"staging", table.host.staging},        {"mock_devices", table.host.devices},
          {"save_copies", table.host.save_copies}};
}

/// Of `bytes` per device that takes part, those of device `index` of the request; 0 where it has
/// nothing to do.
ByteCount planned_of(const MemoryTable& table, const std::vector<ByteCount>& bytes, size_t index) {
  const std::vector<int>& used = table.run.devices;
  auto found = std::find(used.begin(), used.end(), static_cast<int>(index));
  return found == used.end() || bytes.empty() ? 0 : bytes[found - used.begin()];
}

/// What a run plans of device `index` of the request; without updates there 0 where it has nothing
/// to do.
ByteCount planned_of(const MemoryTable& table, size_t index) {
  return planned_of(table, table.run.arena_bytes, index) + table.request.device_update_bytes;
}

/// For stages and updates there.
ByteCount free_of(const MemoryTable& table, size_t index) {
  return table.request.free_bytes[index] + table.request.device_update_bytes;
}

std::string line(const std::string& name, ByteCount bytes, const std::string& more = "") {
  return fmt::format("  {:<14}{:>12}  {:>16} bytes{}\n", name, format_bytes(bytes), bytes, more);
}

}  // namespace

Json bytes_to_json(const MemoryTable& table) {
  Json json = Json::object();
  Json& host = json["host"];
  host = Json::object();
  for (const auto& [name, bytes] : host_rows(table)) host[name] = bytes;
  host["total"] = table.host.total();
  host["left_free"] = kHostReserve;
  host["free"] = table.limits.free_bytes;
  host["free_source"] = table.limits.free_source;
  json["pinned"] = table.pinned();
  json["mapped"] = table.host.state.mapped;
  json["least_device"] = table.least_device;
  json["devices"] = Json::array();
  for (size_t index = 0; index < table.request.devices.size(); ++index) {
    Json device = Json::object();
    device["id"] = table.request.devices[index].id;
    device["free"] = free_of(table, index);
    device["planned"] = planned_of(table, index);
    device["resident"] = planned_of(table, table.run.resident_bytes, index);
    json["devices"].push_back(std::move(device));
  }
  return json;
}

std::string bytes_to_text(const MemoryTable& table) {
  std::string text = "host\n";
  for (const auto& [name, bytes] : host_rows(table)) {
    if (bytes > 0) text += line(name, bytes);
  }
  text +=
      line("total", table.host.total(), fmt::format(", {} pinned", format_bytes(table.pinned())));
  if (ByteCount mapped = table.host.state.mapped; mapped > 0) {
    text += line("mapped", mapped, " stay in the model's files");
  }
  text += line("left free", kHostReserve);
  text += line("there is", table.limits.free_bytes, " by " + table.limits.free_source);
  text += "devices\n" + line("at least", table.least_device, " each, with one layer a stage");
  for (size_t index = 0; index < table.request.devices.size(); ++index) {
    ByteCount resident = planned_of(table, table.run.resident_bytes, index);
    std::string stays = resident == 0 ? ""
                                      : fmt::format(", {} for parameters that stay between slots",
                                                    format_bytes(resident));
    text += line(table.request.devices[index].id, planned_of(table, index),
                 fmt::format(" of {}{}", format_bytes(free_of(table, index)), stays));
  }
  return text;
}

Json architecture_to_json(const Architecture& architecture) {
  Json json = Json::object();
  json["family"] = model_family_name(architecture.family);
  const std::pair<const char*, int64_t> sizes[] = {
      {"layers", architecture.layers},
      {"hidden", architecture.hidden},
      {"heads", architecture.heads},
      {"kv_heads", architecture.kv_heads},
      {"head_dim", architecture.head_dim},
      {"intermediate", architecture.intermediate},
      {"experts", architecture.experts},
      {"experts_per_token", architecture.experts_per_token},
      {"vocabulary", architecture.vocabulary},
      {"positions", architecture.positions}};
  for (const auto& [name, value] : sizes) json[name] = value;
  json["ties_head"] = architecture.ties_head;
  return json;
}

std::string architecture_to_text(const Architecture& architecture) {
  return fmt::format(
      "{}, {} layers {} wide, {} heads over {} of {}, {} {} wide, vocabulary {}, {} positions{}\n",
      model_family_name(architecture.family), architecture.layers, architecture.hidden,
      architecture.heads, architecture.kv_heads, architecture.head_dim,
      architecture.has_experts()
          ? fmt::format("{} of {} experts", architecture.experts_per_token, architecture.experts)
          : "MLP",
      architecture.intermediate, architecture.vocabulary, architecture.positions,
      architecture.ties_head ? ", head tied to the embedding" : "");
}

}  // namespace stagecoach
