#include "tools/bandwidth/profile_text.h"

#include <fmt/format.h>
#include <set>

#include "scheduler/boundary_routes.h"
#include "tools/bandwidth/bandwidth_options.h"
#include "tools/bandwidth/units.h"

namespace stagecoach {

namespace {

/// "cuda:0", or what else tells a card from the others.
std::string name_of(const MachineProfile& profile, int index) {
  const std::string& device = profile.cards[index].device;
  return device.empty() ? fmt::format("card {}", index) : device;
}

std::string rate(double bytes_per_s) {
  return fmt::format("{:.4g} GB/s", bytes_per_s / kBytesPerGb);
}

std::string lane_text(const MeasuredLane& lane) {
  std::string ahead = lane.ahead > 0 ? fmt::format("{}", lane.ahead) : "any number";
  std::string text = fmt::format("{}, chunks of {}, {} ahead", bulk_method_name(lane.method),
                                 short_size(lane.chunk_bytes), ahead);
  if (lane.urgent_p99_s > 0) {
    text +=
        fmt::format("; urgent copies take {:.3g} ms at most in 99 of 100", lane.urgent_p99_s * 1e3);
  }
  return text;
}

std::string line(const std::string& name, const std::string& value) {
  return fmt::format("  {:<28} {}\n", name, value);
}

std::string card_lines(const MachineProfile& profile, int index) {
  const MachineCard& card = profile.cards[index];
  std::string text = fmt::format("\n{}: {}, {}\n", name_of(profile, index), card.name,
                                 format_bytes(card.memory_bytes));
  text += line("up, alone", rate(card.up_bytes_per_s));
  text += line("down, alone", rate(card.down_bytes_per_s));
  text += line("both directions together", rate(card.duplex_bytes_per_s));
  text += line("16-bit products", fmt::format("{:.4g} TFLOP/s", card.flop_per_s / 1e12));
  if (card.bulk.up) text += line("bulk copies up", lane_text(*card.bulk.up));
  if (card.bulk.down) text += line("bulk copies down", lane_text(*card.bulk.down));
  if (card.uplink >= 0) text += line("shares", profile.uplinks[card.uplink].name);
  return text;
}

std::string uplink_lines(const MachineProfile& profile, int index) {
  const SharedUplink& uplink = profile.uplinks[index];
  std::string members;
  for (int card = 0; card < std::ssize(profile.cards); ++card) {
    if (profile.cards[card].uplink != index) continue;
    members += (members.empty() ? "" : " + ") + name_of(profile, card);
  }
  // GB/s are bytes a ns.
  return line(uplink.name, fmt::format("{:.4g} GB/s up, {:.4g} down: {}", uplink.up_bytes_per_ns,
                                       uplink.down_bytes_per_ns, members));
}

std::string peer_line(const MachineProfile& profile, const MachinePeer& peer) {
  std::string direct = peer.works ? rate(peer.direct_bytes_per_s) : "does not work";
  if (!peer.works && !peer.reason.empty()) direct += fmt::format(" ({})", peer.reason);
  std::string staged = peer.through_host_bytes_per_s > 0 ? rate(peer.through_host_bytes_per_s)
                                                         : std::string("not measured");
  return line(fmt::format("{} to {}", name_of(profile, peer.source), name_of(profile, peer.target)),
              fmt::format("directly {}; through the host {}", direct, staged));
}

std::string host_lines(const MachineProfile& profile) {
  std::string text = "\nhost\n";
  std::string threads = profile.host_work_threads > 0
                            ? fmt::format(" with {} threads", profile.host_work_threads)
                            : "";
  text += line("updates touch", rate(profile.host_work_bytes_per_s) + threads);
  if (profile.host_memory_bytes_per_s > 0) {
    text += line("memory", rate(profile.host_memory_bytes_per_s) + " for copies and work together");
  }
  text += line("latency of a copy", fmt::format("{:.3g} us", profile.latency_ns / 1e3));
  return text;
}

std::string origin_lines(const MachineProfile& profile) {
  if (!profile.measurement) return "written by hand: it does not say on which machine\n";
  const MachineMeasurement& measurement = *profile.measurement;
  std::string text =
      fmt::format("measured {} by {}, {}\n", measurement.when, measurement.by, measurement.depth);
  for (const auto& [name, value] : measurement.machine.fields) text += line(name, value);
  return text;
}

void assume_lanes(const MachineProfile& profile, std::vector<std::string>& assumed) {
  for (int index = 0; index < std::ssize(profile.cards); ++index) {
    const MeasuredBulk& bulk = profile.cards[index].bulk;
    if (bulk.up && bulk.down) continue;
    const char* which = bulk.up ? "down" : bulk.down ? "up" : "up and down";
    assumed.push_back(
        fmt::format("{}: chunks of bulk copies {} follow from the rate of the link; "
                    "urgent copies were not measured",
                    name_of(profile, index), which));
  }
}

/// Once for all cards of a name.
void assume_ops(const MachineProfile& profile, std::vector<std::string>& assumed) {
  std::set<std::string> told;
  for (const MachineCard& card : profile.cards) {
    if (profile.ops_of(card.name) != nullptr || !told.insert(card.name).second) continue;
    assumed.push_back(fmt::format(
        "{}: layers run at the rate of large products; operations were not timed", card.name));
  }
}

}  // namespace

std::vector<std::string> assumptions_of(const MachineProfile& profile) {
  std::vector<std::string> assumed;
  assume_lanes(profile, assumed);
  bool is_full = profile.measurement && profile.measurement->depth == "full";
  bool has_several = profile.cards.size() > 1;
  if (has_several && profile.uplinks.empty() && !is_full) {
    assumed.emplace_back("cards share no link; which do was not measured");
  }
  assume_ops(profile, assumed);
  std::vector<std::string> names;
  for (const MachineCard& card : profile.cards) {
    if (!card.device.empty()) names.push_back(card.device);
  }
  BoundaryRoutes routes = boundary_routes(profile, names);
  for (const std::string& text : {routes.slower, routes.unknown}) {
    if (!text.empty()) assumed.push_back(text);
  }
  if (profile.host_work_threads <= 0) {
    assumed.emplace_back("updates take all threads; how many are enough was not measured");
  }
  if (profile.host_memory_bytes_per_s <= 0) {
    assumed.emplace_back("the host's memory limits nothing; its rate was not measured");
  }
  if (profile.latency_ns <= 0) {
    assumed.emplace_back("copies have no latency; it was not measured");
  }
  return assumed;
}

std::string profile_table(const MachineProfile& profile) {
  std::string text = profile.name + ", " + origin_lines(profile);
  for (int index = 0; index < std::ssize(profile.cards); ++index) {
    text += card_lines(profile, index);
  }
  if (!profile.uplinks.empty()) text += "\nshared links\n";
  for (int index = 0; index < std::ssize(profile.uplinks); ++index) {
    text += uplink_lines(profile, index);
  }
  if (!profile.peers.empty()) text += "\nfrom card to card\n";
  for (const MachinePeer& peer : profile.peers) text += peer_line(profile, peer);
  if (!profile.ops.empty()) text += "\ntimed operations\n";
  for (const MachineOps& one : profile.ops) {
    text += line(one.card, fmt::format("{}; 'profile export' lists them", one.rates.ops().size()));
  }
  text += host_lines(profile);
  if (!profile.notes.empty()) text += "\nnotes\n";
  for (const std::string& note : profile.notes) text += "  " + note + "\n";
  std::vector<std::string> assumed = assumptions_of(profile);
  if (!assumed.empty()) text += "\nassumed, since it was not measured\n";
  for (const std::string& one : assumed) text += "  " + one + "\n";
  return text;
}

Json profile_json(const MachineProfile& profile) {
  Json json = Json::object();
  json["profile"] = to_json(profile);
  json["is_measured"] = profile.measurement.has_value();
  json["assumed"] = Json::array();
  for (const std::string& one : assumptions_of(profile)) json["assumed"].push_back(one);
  return json;
}

}  // namespace stagecoach
