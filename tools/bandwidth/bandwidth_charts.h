#pragma once

#include <string>
#include <vector>

#include "tools/bandwidth/results.h"
#include "tools/plot/chart.h"

namespace stagecoach {

/// What of a report can be shown, in the order of its groups: copies by chunk, a chart a device;
/// curves of contention with their fairness; urgent latencies; maps of pairs of devices. Any other
/// group as bars of its first quantity. What was not measured is named, never drawn as 0. Pure.
std::vector<Chart> bandwidth_charts(const BandwidthReport& report);

/// "stagecoach bench bandwidth quick on HOST, TIME", as far as the report tells.
std::string bandwidth_plot_title(const BandwidthReport& report);

/// How the charts are to be read.
std::string bandwidth_plot_caption(const BandwidthReport& report);

}  // namespace stagecoach
