#include "tools/bandwidth/profile_peers.h"

#include <fmt/format.h>
#include <string>

#include "tools/bandwidth/bandwidth_options.h"
#include "tools/bandwidth/peer_measurement.h"
#include "tools/bandwidth/units.h"

namespace stagecoach {

namespace {

/// The result of a route alone from one device to another; null where it was not tried. Other
/// results of the group, of several pairs at once, have other ids.
const MeasurementRecord* find_route(const BandwidthReport& report, const std::string& source,
                                    const std::string& target, PeerRoute route) {
  std::string start = fmt::format("p2p/{}/{}/{}/", source, target, peer_route_name(route));
  for (const MeasurementRecord& record : report.records) {
    const Json* size = record.info.params.find("size");
    bool is_one = record.info.group == "p2p" && record.info.id.starts_with(start);
    // What a killed process should have measured has no params.
    bool is_plain = size == nullptr || !size->is_integer() ||
                    record.info.id == start + short_size(size->as_integer());
    if (is_one && is_plain && record.status != MeasurementStatus::kNotRun) return &record;
  }
  return nullptr;
}

std::string why_not(const MeasurementRecord* direct) {
  if (direct == nullptr) return "not measured";
  switch (direct->status) {
    case MeasurementStatus::kMismatch:
      return "wrong bytes arrived: " + direct->reason;
    case MeasurementStatus::kTimeout:
      return "copies did not end: " + direct->reason;
    default:
      return direct->reason;
  }
}

}  // namespace

void add_profile_peers(const BandwidthReport& report, MachineProfile& profile) {
  for (int source = 0; source < std::ssize(profile.cards); ++source) {
    for (int target = 0; target < std::ssize(profile.cards); ++target) {
      const std::string& from = profile.cards[source].device;
      const std::string& to = profile.cards[target].device;
      const MeasurementRecord* direct = find_route(report, from, to, PeerRoute::kDirect);
      const MeasurementRecord* staged = find_route(report, from, to, PeerRoute::kStaged);
      if (direct == nullptr && staged == nullptr) continue;
      MachinePeer& peer = profile.peers.emplace_back();
      peer.source = source;
      peer.target = target;
      peer.works = direct != nullptr && direct->is_ok() && direct->median() > 0;
      if (peer.works) {
        peer.direct_bytes_per_s = direct->median() * kBytesPerGb;
      } else {
        peer.reason = why_not(direct);
      }
      if (staged != nullptr && staged->is_ok()) {
        peer.through_host_bytes_per_s = staged->median() * kBytesPerGb;
      }
    }
  }
}

}  // namespace stagecoach
