#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "core/status.h"

namespace stagecoach {

/// Devices by bit: bit 0 is the first.
using DeviceSet = uint32_t;

/// Something that several devices share on their way to the host: an uplink of a switch, a socket's
/// memory. Rates are in any one unit.
struct CapacityPool {
  DeviceSet members = 0;
  double capacity = 0;
};

/// Links and pools that explain the rates of devices which are active together.
struct CapacityModel {
  std::vector<double> links;        ///< per device, alone
  std::vector<CapacityPool> pools;  ///< by number of members, then by first member
  double residual = 0;              ///< largest relative error of a measured set's total
  std::map<DeviceSet, std::vector<double>> measured;  ///< per device; 0 for those not in the set
  /// False: the limit of sets ended the search, or a set could not be measured well enough.
  bool is_complete = true;

  /// What `active` devices get: max-min fair shares of links and pools (Bertsekas and Gallager,
  /// Data Networks, section 6.5). Per device; 0 for those that are not active. Pure.
  std::vector<double> rates(DeviceSet active) const;
};

/// Measures the rates of a set of devices that are active together: per device, 0 for the others.
/// Empty where what was measured says nothing of what they can do together: no pool follows from
/// it. A device alone must have its rate.
using MeasureSet = std::function<Result<std::vector<double>>(DeviceSet active)>;

/// How the search goes about it.
struct CapacityFitOptions {
  double tolerance = 0.05;  ///< a total this much below what is known so far is another pool
  int most_sets = 255;      ///< to measure
};

/// Most devices a fit takes.
inline constexpr int kMostFittedDevices = 16;

/// Finds what `device_count` devices share by measuring sets of them: first each alone and all
/// together, then any set whose total is known pools do not limit, smaller ones first. A set with
/// less than links and known pools let expect is reduced to the fewest devices that still show it;
/// they share a pool of what they reach together, and so does every further device that does not
/// add to it. No set is measured twice. Pools whose members alone would not exceed 1 - tolerance of
/// it cannot be seen. Errors: those of `measure`; invalid argument for a bad count.
Result<CapacityModel> fit_capacities(int device_count, const MeasureSet& measure,
                                     const CapacityFitOptions& options = {});

}  // namespace stagecoach
