#pragma once

#include <vector>

#include "scheduler/layer_profile.h"

namespace stagecoach {

/// What two measurements of equal devices may differ by.
inline constexpr double kSpeedNoise = 0.01, kLinkNoise = 0.1, kMemoryNoise = 0.03;

/// Numbers kinds of devices by what planning knows of them: equal ones have the same. Pure.
std::vector<int> kinds_of(const std::vector<PlannedDevice>& devices);

/// Values of devices of one kind that lie within `noise` of their mean become it: measurements of
/// equal devices are never equal, and stages rotate over equal devices alone. Pure.
std::vector<double> level_alike(std::vector<double> values, const std::vector<int>& kinds,
                                double noise);

}  // namespace stagecoach
