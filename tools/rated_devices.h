#pragma once

#include <string>
#include <vector>

#include "backends/sim/sim_card.h"
#include "core/status.h"
#include "hal/backend_registry.h"
#include "hal/op_rates.h"
#include "scheduler/layer_profile.h"
#include "scheduler/machine_profile.h"

namespace stagecoach {

/// What a CPU device computes where `flops=` does not say: a guess, printed as one.
inline constexpr double kAssumedCpuFlopPerS = 20e9;
/// Of devices whose memory nothing limits.
inline constexpr ByteCount kUnlimitedBytes = ByteCount{1} << 50;
/// What host work touches where nothing measured says: as simulated machines assume.
inline constexpr double kAssumedHostBytesPerS = 80e9;

/// The devices of a --devices string with the rates that planning needs, and where they come from.
struct RatedDevices {
  std::vector<PlannedDevice> devices;  ///< the fastest has speed 1
  std::vector<SimCard> cards;          ///< parallel: what stands for them in virtual time
  double flop_per_s = 0;               ///< of speed 1
  /// Parallel to devices: how long their operations take; empty: not known.
  std::vector<OpRates> ops;
  double host_bytes_per_s = kAssumedHostBytesPerS;
  std::vector<SharedUplink> uplinks;
  double host_memory_bytes_per_s = 0;    ///< for all copies and host work; 0: no limit
  double latency_ns = 0;                 ///< of a copy
  std::vector<std::string> assumptions;  ///< a line each, for people
};

/// `sim:NxCARD` takes the card's rates, `sim:NxFILE` the first N cards of a machine profile
/// (docs/machine_profile.schema.json) and everything it says of their links and host; it stands
/// alone. `cpu:N[…]` its options and documented defaults; cards of
/// other backends are opened for their memory and take the rates of the simulated card of their
/// name. Nothing else is opened. Devices that `profile`, which may be null, has measured take its
/// rates instead; what it does not have is assumed as without it. Errors: those of the device
/// string; unavailable for cards without known rates.
Result<RatedDevices> rate_devices(const std::string& text, const BackendRegistry& backends,
                                  const MachineProfile* profile = nullptr);

/// Takes over devices, links, latencies and the host's memory; a hand-over is two copies.
void use_rated_devices(const RatedDevices& rated, StepSetup& setup);

}  // namespace stagecoach
