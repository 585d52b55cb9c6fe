#pragma once

#include <string>
#include <vector>

#include "tools/bandwidth/results.h"

namespace stagecoach {

/// What the states of cards before, during and after a run say, from the context of `report`: links
/// that repeat packets (together with wrong bytes: a riser or cable), cards slowed down or used by
/// others, instances that share a link, and, where copies between devices were measured, a
/// translating IOMMU, redirection to the host and BARs too small for them. Pure.
std::vector<Finding> find_card_problems(const BandwidthReport& report);

/// "link 15.8 GB/s, NUMA node 1, 12 replays" of a device of the context: what to compare where one
/// is slower than others. What is unknown is said to be. Pure.
std::string place_of_device(const Json& context, const std::string& id);

}  // namespace stagecoach
