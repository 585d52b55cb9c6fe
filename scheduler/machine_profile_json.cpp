#include <iterator>

#include "scheduler/machine_profile.h"
#include "scheduler/op_rates_json.h"

namespace stagecoach {

namespace {

constexpr double kNsOfOneS = 1e9;

Json lane_json(const MeasuredLane& lane) {
  Json json = Json::object();
  json["method"] = bulk_method_name(lane.method);
  json["chunk_bytes"] = lane.chunk_bytes;
  json["ahead"] = lane.ahead;
  if (lane.urgent_p99_s > 0) json["urgent_p99_s"] = lane.urgent_p99_s;
  return json;
}

Json card_json(const MachineCard& card) {
  Json json = Json::object();
  json["name"] = card.name;
  if (!card.device.empty()) json["device"] = card.device;
  json["flop_per_s"] = card.flop_per_s;
  json["memory_bytes"] = card.memory_bytes;
  json["up_bytes_per_s"] = card.up_bytes_per_s;
  json["down_bytes_per_s"] = card.down_bytes_per_s;
  json["duplex_bytes_per_s"] = card.duplex_bytes_per_s;
  if (card.bulk.up) json["bulk_up"] = lane_json(*card.bulk.up);
  if (card.bulk.down) json["bulk_down"] = lane_json(*card.bulk.down);
  return json;
}

Json uplink_json(const MachineProfile& machine, int index) {
  const SharedUplink& uplink = machine.uplinks[index];
  Json json = Json::object();
  json["name"] = uplink.name;
  json["cards"] = Json::array();
  for (int card = 0; card < std::ssize(machine.cards); ++card) {
    if (machine.cards[card].uplink == index) json["cards"].push_back(card);
  }
  json["up_bytes_per_s"] = uplink.up_bytes_per_ns * kNsOfOneS;
  json["down_bytes_per_s"] = uplink.down_bytes_per_ns * kNsOfOneS;
  return json;
}

Json peer_json(const MachinePeer& peer) {
  Json json = Json::object();
  json["from"] = peer.source;
  json["to"] = peer.target;
  if (!peer.reason.empty()) json["reason"] = peer.reason;
  if (peer.works) json["direct_bytes_per_s"] = peer.direct_bytes_per_s;
  if (peer.through_host_bytes_per_s > 0) {
    json["through_host_bytes_per_s"] = peer.through_host_bytes_per_s;
  }
  return json;
}

}  // namespace

Json to_json(const MachineProfile& machine) {
  Json json = Json::object();
  json["schema_version"] = kMachineSchemaVersion;
  json["name"] = machine.name;
  if (machine.measurement) {
    Json measurement = Json::object();
    measurement["when"] = machine.measurement->when;
    measurement["by"] = machine.measurement->by;
    measurement["depth"] = machine.measurement->depth;
    measurement["machine"] = to_json(machine.measurement->machine);
    json["measurement"] = std::move(measurement);
  }
  json["notes"] = Json::array();
  for (const std::string& note : machine.notes) json["notes"].push_back(note);
  for (const MachineCard& card : machine.cards) json["cards"].push_back(card_json(card));
  for (int index = 0; index < std::ssize(machine.uplinks); ++index) {
    json["uplinks"].push_back(uplink_json(machine, index));
  }
  for (const MachinePeer& peer : machine.peers) json["peers"].push_back(peer_json(peer));
  for (const MachineOps& one : machine.ops) {
    Json ops = Json::object();
    ops["card"] = one.card;
    ops["ops"] = to_json(one.rates.ops());
    json["ops"].push_back(std::move(ops));
  }
  Json host = Json::object();
  host["work_bytes_per_s"] = machine.host_work_bytes_per_s;
  if (machine.host_work_threads > 0) host["work_threads"] = machine.host_work_threads;
  if (machine.host_memory_bytes_per_s > 0) {
    host["memory_bytes_per_s"] = machine.host_memory_bytes_per_s;
  }
  json["host"] = std::move(host);
  json["copy_latency_s"] = machine.latency_ns / kNsOfOneS;
  return json;
}

}  // namespace stagecoach
