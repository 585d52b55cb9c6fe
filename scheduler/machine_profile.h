#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/status.h"
#include "hal/op_rates.h"
#include "scheduler/layer_profile.h"
#include "scheduler/machine_identity.h"
#include "scheduler/measured_bulk.h"

namespace stagecoach {

/// The name of cards whose profile gives none.
inline constexpr const char* kUnnamedCard = "card";

/// A card of a machine profile.
struct MachineCard {
  std::string name;
  std::string device;     ///< "cuda:0", as it was opened for measuring; empty: not of this machine
  double flop_per_s = 0;  ///< 16-bit products, as long runs reach
  ByteCount memory_bytes = 0;
  double up_bytes_per_s = 0;      ///< host to card, alone
  double down_bytes_per_s = 0;    ///< card to host, alone
  double duplex_bytes_per_s = 0;  ///< both together
  MeasuredBulk bulk;              ///< how its bulk copies leave room for urgent ones
  int uplink = -1;                ///< index into MachineProfile::uplinks; -1: none

  /// What a direction has when both are in use.
  double charged_up_bytes_per_s() const { return up_bytes_per_s * both_share(); }
  double charged_down_bytes_per_s() const { return down_bytes_per_s * both_share(); }

 private:
  double both_share() const { return duplex_bytes_per_s / (up_bytes_per_s + down_bytes_per_s); }
};

/// How long operations take on cards of one name.
struct MachineOps {
  std::string card;  ///< MachineCard::name
  OpRates rates;
};

/// What copies from one card to another reach.
struct MachinePeer {
  int source = 0, target = 0;           ///< indices into MachineProfile::cards
  bool works = false;                   ///< data arrived right, peer to peer
  std::string reason;                   ///< why not
  double direct_bytes_per_s = 0;        ///< 0: does not work
  double through_host_bytes_per_s = 0;  ///< by way of pinned host memory; 0: not measured

  bool is_faster_direct() const { return works && direct_bytes_per_s > through_host_bytes_per_s; }
};

/// When, by what and on which machine a profile was measured.
struct MachineMeasurement {
  std::string when;         ///< UTC, "2026-11-30T17:05:00Z"
  std::string by;           ///< "stagecoach 0.1.0"
  std::string depth;        ///< "quick" or "full"
  MachineIdentity machine;  ///< what must be the same for it to hold
};

/// What planning, simulation and training need to know of a machine.
struct MachineProfile {
  std::string name;
  std::vector<std::string> notes;  ///< where its figures come from, for people
  std::vector<MachineCard> cards;
  std::vector<SharedUplink> uplinks;
  std::vector<MachinePeer> peers;
  std::vector<MachineOps> ops;         ///< of cards whose operations were timed
  double host_memory_bytes_per_s = 0;  ///< for all copies and host work; 0: no limit
  double host_work_bytes_per_s = 0;    ///< that updates touch
  int host_work_threads = 0;           ///< that reach it with the fewest; 0: not measured
  double latency_ns = 0;               ///< of a copy
  std::optional<MachineMeasurement> measurement;  ///< none: written by hand

  /// Of the fastest of the first `count` cards.
  double fastest_flop_per_s(int count) const;
  /// The card that was opened as `device`; null where there is none.
  const MachineCard* card_of(const std::string& device) const;
  /// What was measured from one to another, as they were opened; null where nothing was.
  const MachinePeer* peer_of(const std::string& from, const std::string& to) const;
  /// What is known of operations on cards called `card`; null: nothing.
  const OpRates* ops_of(const std::string& card) const;
};

/// Of the files that this version writes, and the latest that it reads.
inline constexpr int kMachineSchemaVersion = 1;

/// Reads a machine profile: JSON as docs/machine_profile.schema.json says. Rates and latencies that
/// are missing, no number or out of range, cards behind two uplinks or that do not exist, and
/// unknown fields, are refused by file and field.
Result<MachineProfile> read_machine_profile(const std::string& path);

/// The same as JSON, for `read_machine_profile`.
Json to_json(const MachineProfile& machine);

/// The first `count` cards for planning, "sim:0" first; the fastest of them has speed 1. Invalid
/// argument where the machine has fewer.
Result<std::vector<PlannedDevice>> planned_devices(const MachineProfile& machine, int count);

}  // namespace stagecoach
