#pragma once

#include <string>
#include <vector>

#include "core/status.h"
#include "scheduler/layer_profile.h"

namespace stagecoach {

/// A card of a machine profile.
struct MachineCard {
  std::string name;
  double flop_per_s = 0;  ///< 16-bit products, as long runs reach
  ByteCount memory_bytes = 0;
  double up_bytes_per_s = 0;    ///< host to card
  double down_bytes_per_s = 0;  ///< card to host
  int uplink = -1;              ///< index into MachineProfile::uplinks; -1: none
};

/// What planning and simulation need to know of a machine that is not here.
struct MachineProfile {
  std::string name;
  std::vector<std::string> notes;  ///< where its figures come from, for people
  std::vector<MachineCard> cards;
  std::vector<SharedUplink> uplinks;
  double host_memory_bytes_per_s = 0;  ///< for all copies and host work; 0: no limit
  double host_work_bytes_per_s = 0;    ///< that updates touch
  double latency_ns = 0;               ///< of a copy

  /// Of the fastest of the first `count` cards.
  double fastest_flop_per_s(int count) const;
};

/// Reads a machine profile: JSON as docs/machine_profile.schema.json says. Rates and latencies that
/// are missing, no number or out of range, cards behind two uplinks or that do not exist, and
/// unknown fields, are refused by file and field.
Result<MachineProfile> read_machine_profile(const std::string& path);

/// The first `count` cards for planning, "sim:0" first; the fastest of them has speed 1. Invalid
/// argument where the machine has fewer.
Result<std::vector<PlannedDevice>> planned_devices(const MachineProfile& machine, int count);

}  // namespace stagecoach
