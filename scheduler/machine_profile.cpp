#include "scheduler/machine_profile.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>

#include "core/file.h"
#include "scheduler/json_fields.h"
#include "scheduler/op_rates_json.h"

namespace stagecoach {

namespace {

constexpr double kNsPerS = 1e9;
constexpr double kLeastFlopPerS = 1e6, kLeastRate = 1e6, kMostRate = 1e18;
constexpr int kMostCards = 64, kMostThreads = 1 << 16, kMostAhead = 1 << 12;
constexpr double kLeastChunkBytes = 4096, kMostChunkBytes = 1 << 30, kMostSeconds = 1e6;

/// How copies of one direction travel; nothing where the field is missing.
Result<std::optional<MeasuredLane>> read_lane(const Json& card, const char* name,
                                              const std::string& where) {
  const Json* json = card.find(name);
  if (json == nullptr) return std::optional<MeasuredLane>();
  std::string place = fmt::format("{}: {}", where, name);
  JsonFields fields(*json, place, {"method", "chunk_bytes", "ahead", "urgent_p99_s"});
  STAGECOACH_RETURN_IF_ERROR(fields.check_names());
  MeasuredLane lane;
  STAGECOACH_ASSIGN_OR_RETURN(std::string method, fields.text("method", "alternating"));
  Result<BulkMethod> parsed = parse_bulk_method(method);
  if (!parsed.is_ok()) return parsed.status().with_context(place);
  lane.method = *parsed;
  STAGECOACH_ASSIGN_OR_RETURN(double chunk,
                              fields.number("chunk_bytes", kLeastChunkBytes, kMostChunkBytes));
  lane.chunk_bytes = static_cast<ByteCount>(chunk);
  STAGECOACH_ASSIGN_OR_RETURN(lane.ahead, fields.count("ahead", 0, kMostAhead, 0));
  STAGECOACH_ASSIGN_OR_RETURN(lane.urgent_p99_s, fields.number("urgent_p99_s", 0, kMostSeconds, 0));
  return std::optional<MeasuredLane>(lane);
}

Status read_cards(const Json& json, const std::string& where, MachineProfile& machine) {
  JsonFields fields(json, where,
                    {"name", "count", "device", "flop_per_s", "memory_bytes", "up_bytes_per_s",
                     "down_bytes_per_s", "duplex_bytes_per_s", "bulk_up", "bulk_down"});
  STAGECOACH_RETURN_IF_ERROR(fields.check_names());
  MachineCard card;
  STAGECOACH_ASSIGN_OR_RETURN(card.name, fields.text("name", kUnnamedCard));
  STAGECOACH_ASSIGN_OR_RETURN(int count, fields.count("count", 1, kMostCards, 1));
  STAGECOACH_ASSIGN_OR_RETURN(card.flop_per_s,
                              fields.number("flop_per_s", kLeastFlopPerS, kMostRate));
  STAGECOACH_ASSIGN_OR_RETURN(double memory, fields.number("memory_bytes", 1, kMostBytes));
  STAGECOACH_ASSIGN_OR_RETURN(card.up_bytes_per_s,
                              fields.number("up_bytes_per_s", kLeastRate, kMostRate));
  STAGECOACH_ASSIGN_OR_RETURN(card.down_bytes_per_s,
                              fields.number("down_bytes_per_s", kLeastRate, kMostRate));
  double both = card.up_bytes_per_s + card.down_bytes_per_s;
  STAGECOACH_ASSIGN_OR_RETURN(card.duplex_bytes_per_s,
                              fields.number("duplex_bytes_per_s", kLeastRate, both, both));
  card.memory_bytes = static_cast<ByteCount>(memory);
  STAGECOACH_ASSIGN_OR_RETURN(card.device, fields.text("device", ""));
  if (!card.device.empty() && count > 1) {
    return invalid_argument(fmt::format(
        "{}: count is {}; a card with 'device' is one card, leave out one of them", where, count));
  }
  STAGECOACH_ASSIGN_OR_RETURN(card.bulk.up, read_lane(json, "bulk_up", where));
  STAGECOACH_ASSIGN_OR_RETURN(card.bulk.down, read_lane(json, "bulk_down", where));
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
  JsonFields fields(json, where, {"memory_bytes_per_s", "work_bytes_per_s", "work_threads"});
  STAGECOACH_RETURN_IF_ERROR(fields.check_names());
  STAGECOACH_ASSIGN_OR_RETURN(machine.host_work_bytes_per_s,
                              fields.number("work_bytes_per_s", kLeastRate, kMostRate));
  STAGECOACH_ASSIGN_OR_RETURN(machine.host_memory_bytes_per_s,
                              fields.number("memory_bytes_per_s", kLeastRate, kMostRate, 0));
  STAGECOACH_ASSIGN_OR_RETURN(machine.host_work_threads,
                              fields.count("work_threads", 1, kMostThreads, 0));
  return Status::ok();
}

Result<int> read_card_index(const JsonFields& fields, const char* name, const std::string& where,
                            const MachineProfile& machine) {
  constexpr int kMissing = -1;
  int last = static_cast<int>(machine.cards.size()) - 1;
  STAGECOACH_ASSIGN_OR_RETURN(int index, fields.count(name, 0, last, kMissing));
  if (index != kMissing) return index;
  return invalid_argument(
      fmt::format("{}: '{}' is missing; it must be a card from 0 to {}", where, name, last));
}

Status read_peer(const Json& json, const std::string& where, MachineProfile& machine) {
  JsonFields fields(json, where,
                    {"from", "to", "reason", "direct_bytes_per_s", "through_host_bytes_per_s"});
  STAGECOACH_RETURN_IF_ERROR(fields.check_names());
  MachinePeer peer;
  STAGECOACH_ASSIGN_OR_RETURN(peer.source, read_card_index(fields, "from", where, machine));
  STAGECOACH_ASSIGN_OR_RETURN(peer.target, read_card_index(fields, "to", where, machine));
  if (peer.source == peer.target) {
    return invalid_argument(
        fmt::format("{}: from and to are card {}; they must differ", where, peer.source));
  }
  STAGECOACH_ASSIGN_OR_RETURN(peer.reason, fields.text("reason", ""));
  STAGECOACH_ASSIGN_OR_RETURN(peer.direct_bytes_per_s,
                              fields.number("direct_bytes_per_s", 1, kMostRate, 0));
  STAGECOACH_ASSIGN_OR_RETURN(peer.through_host_bytes_per_s,
                              fields.number("through_host_bytes_per_s", 1, kMostRate, 0));
  peer.works = peer.direct_bytes_per_s > 0;
  machine.peers.push_back(std::move(peer));
  return Status::ok();
}

Status read_ops(const Json& json, const std::string& where, MachineProfile& machine) {
  JsonFields fields(json, where, {"card", "ops"});
  STAGECOACH_RETURN_IF_ERROR(fields.check_names());
  MachineOps ops;
  STAGECOACH_ASSIGN_OR_RETURN(ops.card, fields.text("card", ""));
  STAGECOACH_ASSIGN_OR_RETURN(Json::Array list, fields.list("ops"));
  STAGECOACH_ASSIGN_OR_RETURN(std::vector<TimedOp> timed, read_timed_ops(Json(list), where));
  for (const TimedOp& op : timed) ops.rates.add(op);
  machine.ops.push_back(std::move(ops));
  return Status::ok();
}

Status read_measurement(const Json& json, const std::string& where, MachineProfile& machine) {
  JsonFields fields(json, where, {"when", "by", "depth", "machine"});
  STAGECOACH_RETURN_IF_ERROR(fields.check_names());
  MachineMeasurement measurement;
  STAGECOACH_ASSIGN_OR_RETURN(measurement.when, fields.text("when", ""));
  STAGECOACH_ASSIGN_OR_RETURN(measurement.by, fields.text("by", ""));
  STAGECOACH_ASSIGN_OR_RETURN(measurement.depth, fields.text("depth", ""));
  const Json* identity = json.find("machine");
  if (identity == nullptr) {
    return invalid_argument(fmt::format("{}: 'machine' is missing; it must be a table", where));
  }
  STAGECOACH_ASSIGN_OR_RETURN(measurement.machine,
                              parse_machine_identity(*identity, where + ": machine"));
  machine.measurement = std::move(measurement);
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

/// Reads each entry of a list; errors name its place.
Status read_list(const JsonFields& fields, const char* name, const std::string& path,
                 Status (*read)(const Json&, const std::string&, MachineProfile&),
                 MachineProfile& machine) {
  STAGECOACH_ASSIGN_OR_RETURN(Json::Array entries, fields.list(name));
  for (size_t index = 0; index < entries.size(); ++index) {
    std::string where = fmt::format("{}: {}[{}]", path, name, index);
    STAGECOACH_RETURN_IF_ERROR(read(entries[index], where, machine));
  }
  return Status::ok();
}

Result<MachineProfile> parse_machine(const Json& json, const std::string& path) {
  JsonFields fields(json, path,
                    {"schema_version", "name", "notes", "cards", "uplinks", "peers", "host",
                     "copy_latency_s", "measurement", "ops"});
  STAGECOACH_RETURN_IF_ERROR(fields.check_names());
  STAGECOACH_ASSIGN_OR_RETURN(
      int version, fields.count("schema_version", 1, std::numeric_limits<int>::max(), 1));
  if (version > kMachineSchemaVersion) {
    return invalid_argument(
        fmt::format("{}: schema_version is {}; this version reads up to {}, measure again with "
                    "'stagecoach bench bandwidth --save-profile FILE'",
                    path, version, kMachineSchemaVersion));
  }
  MachineProfile machine;
  STAGECOACH_ASSIGN_OR_RETURN(machine.name, fields.text("name", path));
  STAGECOACH_RETURN_IF_ERROR(read_notes(fields, path, machine));
  STAGECOACH_RETURN_IF_ERROR(read_list(fields, "cards", path, read_cards, machine));
  if (machine.cards.empty() || std::ssize(machine.cards) > kMostCards) {
    return invalid_argument(fmt::format("{}: cards are {} together; they must be 1 to {}", path,
                                        machine.cards.size(), kMostCards));
  }
  STAGECOACH_RETURN_IF_ERROR(read_list(fields, "uplinks", path, read_uplink, machine));
  STAGECOACH_RETURN_IF_ERROR(read_list(fields, "peers", path, read_peer, machine));
  STAGECOACH_RETURN_IF_ERROR(read_list(fields, "ops", path, read_ops, machine));
  const Json* host = json.find("host");
  if (host == nullptr) {
    return invalid_argument(fmt::format("{}: 'host' is missing; it must be a table", path));
  }
  STAGECOACH_RETURN_IF_ERROR(read_host(*host, path + ": host", machine));
  STAGECOACH_ASSIGN_OR_RETURN(double latency_s, fields.number("copy_latency_s", 0, 1, 0));
  machine.latency_ns = latency_s * kNsPerS;
  if (const Json* measurement = json.find("measurement"); measurement != nullptr) {
    STAGECOACH_RETURN_IF_ERROR(read_measurement(*measurement, path + ": measurement", machine));
  }
  return machine;
}

}  // namespace

Result<MachineProfile> read_machine_profile(const std::string& path) {
  STAGECOACH_ASSIGN_OR_RETURN(std::string text, read_file(path));
  Result<Json> json = Json::parse(text);
  if (!json.is_ok()) return json.status().with_context(path);
  return parse_machine(*json, path);
}

const OpRates* MachineProfile::ops_of(const std::string& card) const {
  for (const MachineOps& one : ops) {
    if (one.card == card) return &one.rates;
  }
  return nullptr;
}

double MachineProfile::fastest_flop_per_s(int count) const {
  double fastest = 0;
  for (int card = 0; card < count; ++card) fastest = std::max(fastest, cards[card].flop_per_s);
  return fastest;
}

const MachineCard* MachineProfile::card_of(const std::string& device) const {
  for (const MachineCard& card : cards) {
    if (!card.device.empty() && card.device == device) return &card;
  }
  return nullptr;
}

const MachinePeer* MachineProfile::peer_of(const std::string& from, const std::string& to) const {
  for (const MachinePeer& peer : peers) {
    bool is_it = cards[peer.source].device == from && cards[peer.target].device == to;
    if (is_it && !from.empty() && !to.empty()) return &peer;
  }
  return nullptr;
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
    device.up_bytes_per_ns = card.charged_up_bytes_per_s() / kNsPerS;
    device.down_bytes_per_ns = card.charged_down_bytes_per_s() / kNsPerS;
    device.uplink = card.uplink;
  }
  return devices;
}

}  // namespace stagecoach
