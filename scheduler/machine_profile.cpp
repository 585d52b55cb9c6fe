#include "scheduler/machine_profile.h"

#include <algorithm>
#include <fmt/format.h>

#include "core/file.h"
#include "scheduler/json_fields.h"

namespace stagecoach {

namespace {

constexpr double kNsPerS = 1e9;
constexpr double kLeastFlopPerS = 1e6, kLeastRate = 1e8, kMostRate = 1e18;
constexpr int kMostCards = 64;

Status read_cards(const Json& json, const std::string& where, MachineProfile& machine) {
  JsonFields fields(json, where,
                    {"name", "count", "flop_per_s", "memory_bytes", "up_bytes_per_s",
                     "down_bytes_per_s", "duplex_bytes_per_s"});
  STAGECOACH_RETURN_IF_ERROR(fields.check_names());
  MachineCard card;
  STAGECOACH_ASSIGN_OR_RETURN(card.name, fields.text("name", "card"));
  STAGECOACH_ASSIGN_OR_RETURN(int count, fields.count("count", 1, kMostCards, 1));
  STAGECOACH_ASSIGN_OR_RETURN(card.flop_per_s,
                              fields.number("flop_per_s", kLeastFlopPerS, kMostRate));
  STAGECOACH_ASSIGN_OR_RETURN(double memory, fields.number("memory_bytes", 1, kMostBytes));
  STAGECOACH_ASSIGN_OR_RETURN(card.up_bytes_per_s,
                              fields.number("up_bytes_per_s", kLeastRate, kMostRate));
  STAGECOACH_ASSIGN_OR_RETURN(card.down_bytes_per_s,
                              fields.number("down_bytes_per_s", kLeastRate, kMostRate));
  double both = card.up_bytes_per_s + card.down_bytes_per_s;
  STAGECOACH_ASSIGN_OR_RETURN(double duplex,
                              fields.number("duplex_bytes_per_s", kLeastRate, both, both));
  card.memory_bytes = static_cast<ByteCount>(memory);
  // Both directions are in use together.
  card.up_bytes_per_s *= duplex / both;
  card.down_bytes_per_s *= duplex / both;
  machine.cards.insert(machine.cards.end(), count, card);
  return Status::ok();
}

Status read_uplink(const Json& json, const std::string& where, MachineProfile& machine) {
  JsonFields fields(json, where, {"name", "cards", "up_bytes_per_s", "down_bytes_per_s"});
  STAGECOACH_RETURN_IF_ERROR(fields.check_names());
  SharedUplink uplink;
  STAGECOACH_ASSIGN_OR_RETURN(uplink.name, fields.text("name", "uplink"));
  STAGECOACH_ASSIGN_OR_RETURN(double up, fields.number("up_bytes_per_s", kLeastRate, kMostRate));
  STAGECOACH_ASSIGN_OR_RETURN(double down,
                              fields.number("down_bytes_per_s", kLeastRate, kMostRate));
  uplink.up_bytes_per_ns = up / kNsPerS;
  uplink.down_bytes_per_ns = down / kNsPerS;
  auto number = static_cast<int>(machine.uplinks.size());
  machine.uplinks.push_back(std::move(uplink));
  STAGECOACH_ASSIGN_OR_RETURN(Json::Array cards, fields.list("cards"));
  for (const Json& card : cards) {
    bool exists = card.is_integer() && card.as_integer() >= 0 &&
                  card.as_integer() < std::ssize(machine.cards);
    if (!exists) {
      return invalid_argument(fmt::format("{}: cards holds {}; it must be from 0 to {}", where,
                                          card.dump(), machine.cards.size() - 1));
    }
    MachineCard& behind = machine.cards[card.as_integer()];
    if (behind.uplink >= 0) {
      return invalid_argument(fmt::format("{}: cards holds {}, which is behind '{}' already", where,
                                          card.dump(), machine.uplinks[behind.uplink].name));
    }
    behind.uplink = number;
  }
  return Status::ok();
}

Status read_host(const Json& json, const std::string& where, MachineProfile& machine) {
  JsonFields fields(json, where, {"memory_bytes_per_s", "work_bytes_per_s"});
  STAGECOACH_RETURN_IF_ERROR(fields.check_names());
  STAGECOACH_ASSIGN_OR_RETURN(machine.host_work_bytes_per_s,
                              fields.number("work_bytes_per_s", kLeastRate, kMostRate));
  STAGECOACH_ASSIGN_OR_RETURN(machine.host_memory_bytes_per_s,
                              fields.number("memory_bytes_per_s", kLeastRate, kMostRate, 0));
  return Status::ok();
}

Status read_notes(const JsonFields& fields, const std::string& path, MachineProfile& machine) {
  STAGECOACH_ASSIGN_OR_RETURN(Json::Array notes, fields.list("notes"));
  for (const Json& note : notes) {
    if (!note.is_string()) {
      return invalid_argument(
          fmt::format("{}: notes holds {}; each must be text", path, note.dump()));
    }
    machine.notes.push_back(note.as_string());
  }
  return Status::ok();
}

Result<MachineProfile> parse_machine(const Json& json, const std::string& path) {
  JsonFields fields(json, path, {"name", "notes", "cards", "uplinks", "host", "copy_latency_s"});
  STAGECOACH_RETURN_IF_ERROR(fields.check_names());
  MachineProfile machine;
  STAGECOACH_ASSIGN_OR_RETURN(machine.name, fields.text("name", path));
  STAGECOACH_RETURN_IF_ERROR(read_notes(fields, path, machine));
  STAGECOACH_ASSIGN_OR_RETURN(Json::Array cards, fields.list("cards"));
  for (size_t index = 0; index < cards.size(); ++index) {
    std::string where = fmt::format("{}: cards[{}]", path, index);
    STAGECOACH_RETURN_IF_ERROR(read_cards(cards[index], where, machine));
  }
  if (machine.cards.empty() || std::ssize(machine.cards) > kMostCards) {
    return invalid_argument(fmt::format("{}: cards are {} together; they must be 1 to {}", path,
                                        machine.cards.size(), kMostCards));
  }
  STAGECOACH_ASSIGN_OR_RETURN(Json::Array uplinks, fields.list("uplinks"));
  for (size_t index = 0; index < uplinks.size(); ++index) {
    std::string where = fmt::format("{}: uplinks[{}]", path, index);
    STAGECOACH_RETURN_IF_ERROR(read_uplink(uplinks[index], where, machine));
  }
  const Json* host = json.find("host");
  if (host == nullptr) {
    return invalid_argument(fmt::format("{}: 'host' is missing; it must be a table", path));
  }
  STAGECOACH_RETURN_IF_ERROR(read_host(*host, path + ": host", machine));
  STAGECOACH_ASSIGN_OR_RETURN(double latency_s, fields.number("copy_latency_s", 0, 1, 0));
  machine.latency_ns = latency_s * kNsPerS;
  return machine;
}

}  // namespace

Result<MachineProfile> read_machine_profile(const std::string& path) {
  STAGECOACH_ASSIGN_OR_RETURN(std::string text, read_file(path));
  Result<Json> json = Json::parse(text);
  if (!json.is_ok()) return json.status().with_context(path);
  return parse_machine(*json, path);
}

double MachineProfile::fastest_flop_per_s(int count) const {
  double fastest = 0;
  for (int card = 0; card < count; ++card) fastest = std::max(fastest, cards[card].flop_per_s);
  return fastest;
}

Result<std::vector<PlannedDevice>> planned_devices(const MachineProfile& machine, int count) {
  if (count < 1 || count > std::ssize(machine.cards)) {
    return invalid_argument(fmt::format("{} cards of machine '{}'; it has 1 to {}", count,
                                        machine.name, machine.cards.size()));
  }
  double fastest = machine.fastest_flop_per_s(count);
  std::vector<PlannedDevice> devices;
  for (int index = 0; index < count; ++index) {
    const MachineCard& card = machine.cards[index];
    PlannedDevice& device = devices.emplace_back();
    device.name = fmt::format("sim:{}", index);
    device.speed = card.flop_per_s / fastest;
    device.memory_bytes = card.memory_bytes;
    device.up_bytes_per_ns = card.up_bytes_per_s / kNsPerS;
    device.down_bytes_per_ns = card.down_bytes_per_s / kNsPerS;
    device.uplink = card.uplink;
  }
  return devices;
}

}  // namespace stagecoach
