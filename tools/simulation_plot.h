#pragma once

#include <string>

#include "core/status.h"
#include "tools/plot/drawing.h"
#include "tools/simulation_output.h"

namespace stagecoach {

/// Most slots a plot shows; more could not be told apart.
inline constexpr int64_t kMaxPlotSlots = 20'000;

/// The timeline: a row a device with a box a slot (colour by kind, shade by chunk, label by
/// micro-batch; what stays grey is idle) and under it the activations it holds over time. Refuses
/// more than kMaxPlotSlots.
Result<Drawing> draw_simulation(const SimulatedRun& shown);

/// Writes the plot to `path`: .svg alone, .html as a page with the measures.
Status write_plot(const std::string& path, const SimulatedRun& shown);

}  // namespace stagecoach
