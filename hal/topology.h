#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/status.h"
#include "hal/device.h"

namespace stagecoach {

/// Whether copies between two devices may go peer to peer. Capability flags lie, so a link counts
/// as working only after a timed, checksummed copy.
enum class PeerState : uint8_t { kUntested, kWorks, kBroken, kImpossible };

/// Who decides about peer to peer copies: a probe, or the user (STAGECOACH_PEER=on or off), since a
/// probe cannot know every machine.
enum class PeerChoice : uint8_t { kProbe, kOn, kOff };

/// What connects a pair of devices.
struct PeerLink {
  int source = 0;  ///< index into the devices given to discover
  int target = 0;
  PeerState state = PeerState::kUntested;
  std::string reason;           ///< why it is broken or impossible, or works untested
  double bytes_per_second = 0;  ///< measured by the probe; 0 when not
};

/// One NUMA node of the host.
struct NumaNode {
  int index = 0;
  int core_count = 0;
  ByteCount memory_bytes = 0;
};

/// The host and the links between devices. Plain data after discovery.
struct Topology {
  std::vector<NumaNode> nodes;  ///< from hwloc; one node when the machine tells nothing
  std::vector<PeerLink> links;  ///< every ordered pair of different devices

  /// Reads the host's NUMA nodes and lists the links as untested. No device work.
  static Result<Topology> discover(const std::vector<Device*>& devices);
};

/// Tests one link with a copy of `size` bytes, compared afterwards, within `timeout_ns`, and fills
/// in its state. A corrupt or late copy makes the link broken; it is not a failure of the call.
Status probe_peer_link(const std::vector<Device*>& devices, PeerLink& link, ByteCount size,
                       int64_t timeout_ns);

/// Settles all `links`. With kOn a link works where the driver enables it, without a test; with
/// kOff none does. A link for whose test there is no room stays untested, with the reason.
Status settle_peer_links(const std::vector<Device*>& devices, PeerChoice choice,
                         std::vector<PeerLink>& links);

}  // namespace stagecoach
