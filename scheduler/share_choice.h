#pragma once

#include "scheduler/layer_profile.h"

namespace stagecoach {

/// What an update of all trained elements moves, in bytes.
struct UpdateTraffic {
  double host = 0;       ///< that the host touches
  double host_norm = 0;  ///< those of them that it touches whoever updates
  double up = 0;         ///< to devices, where they update everything
  double down = 0;       ///< back
};

/// Which share of the updates devices should make, and what it is worth.
struct ShareChoice {
  double share = 0;
  double step_ns = 0;          ///< predicted
  double host_only_ns = 0;     ///< predicted with share 0
  double host_updates_ns = 0;  ///< what the host's part takes, all of it with share 0
  double device_updates_ns = 0;
};

/// The share of `setup`'s updates, measured on the host alone, with which a step by these slots is
/// predicted to be shortest, in eighths; 0 unless it is kWorthSharing shorter than without. Host
/// and devices work at the same time; devices reach kUpdaterLinkShare of what passes leave of their
/// links. 0 too where a link's rate is not known. Pure.
ShareChoice choose_device_share(const StepSetup& setup, const SlotPlan& slots,
                                const UpdateTraffic& traffic);

/// Of a link's rate what updates on a device reach: an H200 made 0.9e9 updates of 14 bytes a second
/// over a link of 50 GB/s (docs/performance.md, Update modes: `async`, half on the card).
inline constexpr double kUpdaterLinkShare = 0.25;
/// Less than this is within what the model leaves out: copies of updates beside those of passes.
inline constexpr double kWorthSharing = 0.1;

}  // namespace stagecoach
