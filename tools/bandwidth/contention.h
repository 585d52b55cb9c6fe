#pragma once

#include <memory>
#include <span>
#include <vector>

#include "tools/bandwidth/results.h"
#include "tools/bandwidth/sampler.h"
#include "tools/bandwidth/transfer_measurement.h"

namespace stagecoach {

/// Measures which devices share what on their way to the host, in one direction: the sets that
/// `fit_capacities` asks for, a record each, then the curves packed and spread. `memories` are one
/// a device. Adds to `report.records` and, unless a set could not be measured, to `report.fits`.
void run_contention(std::span<const std::shared_ptr<TransferMemory>> memories,
                    LinkDirection direction, const TransferShape& shape,
                    const RepetitionOptions& sampling, BandwidthReport& report);

/// The measurement of the devices in `active` in one direction, "contention/up/cuda:0+cuda:1".
std::unique_ptr<Measurement> make_contention_measurement(
    std::span<const std::shared_ptr<TransferMemory>> memories, DeviceSet active,
    LinkDirection direction, const TransferShape& shape);

/// Devices so that those of a pool follow each other, smallest pools inside. Pure.
std::vector<int> packed_order(const CapacityModel& model);
/// Devices so that each comes from the pool that has had the fewest. Pure.
std::vector<int> spread_order(const CapacityModel& model);

}  // namespace stagecoach
